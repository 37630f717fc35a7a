"""Load and call damaged copies of a program; run by test_damaged_programs.py in a process of its own.

    python run_damaged.py PROGRAM COUNT SEED software|hardware

The last argument chooses the kernels: those for a CPU or those for a GPU; both run on any adapter.

Every copy is announced on stdout before it is tried, so that the last one printed is the one that ended the
process, if anything did. The outcomes leave as one line of JSON at the end.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path

from damage import damaged_copies, structure_of
from live_inputs import live_inputs

import pteron
from pteron import DeviceError, FormatError, HostError

SECONDS_PER_COPY = 20  # after that, it hangs: the process ends, showing where
BYTES_MAX = 1 << 26  # a call with larger inputs is left out


def use(data: bytes, device: pteron.Device) -> str:
    """The whole way: load, every method, several calls; the outcome in a word. Other errors are raised."""
    try:
        with pteron.load(data, device=device) as program:
            for name in program.methods:
                method = program[name]
                for inputs in live_inputs(method, fill=0, bytes_max=BYTES_MAX):
                    method(*inputs)
    except (FormatError, HostError) as error:
        return type(error).__name__
    except DeviceError as error:
        if "needs a buffer of" not in str(error):
            raise
        return "too large here"
    return "ran"


def main() -> None:
    path, count, seed, route = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    device = pteron.Device.open()
    device.target = replace(device.target, is_cpu=route == "software")
    original = path.read_bytes()
    assert use(original, device) == "ran"
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    slowest = (0.0, "")
    for done, data in damaged_copies(original, structure_of(original), count, seed):
        print(done, flush=True)
        faulthandler.dump_traceback_later(SECONDS_PER_COPY, exit=True)
        began = time.process_time()  # which other processes do not lengthen
        try:
            outcomes[use(data, device)] += 1
        except Exception:
            failures.append(f"{done}\n{traceback.format_exc()}")
        slowest = max(slowest, (time.process_time() - began, done))
        faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"outcomes": outcomes, "failures": failures, "slowest": slowest}))


if __name__ == "__main__":
    main()
