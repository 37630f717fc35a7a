"""Inspect, load and call programs with little memory, in a process of its own: test_hostile_programs.py.

    python use_program.py FILE...

One line leaves for each file: its name, the error in which its use ended or "ran", and the error's text.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import torch

import pteron
from pteron.tools.inspect import inspect
from pteron.tools.inspect.report import inspect_lines

MEMORY_MAX = 4 << 30  # of addresses, besides those that libraries and drivers take before anything is done


def use(path: Path) -> str:
    """Every method, twice; the outcome in a word and the error's first line."""
    try:
        assert list(inspect_lines(inspect(path)))
        with pteron.load(path) as program:
            for name in program.methods:
                method = program[name]
                inputs = [np.ones(spec.shape_max, spec.dtype.numpy) for spec in method.inputs if spec.dtype]
                for _ in range(2):
                    method(*inputs)
                    assert all((array == 1).all() for array in inputs), "an input was changed"
    except pteron.PteronError as error:
        return f"{type(error).__name__} {str(error).splitlines()[0]}"
    return "ran"


def main() -> None:
    torch.set_num_threads(1)  # each takes addresses, and there are as many as processors
    pteron.Device.open().wait()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_MAX
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for path in map(Path, sys.argv[1:]):
        print(path.stem, use(path), flush=True)


if __name__ == "__main__":
    main()
