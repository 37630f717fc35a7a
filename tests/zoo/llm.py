"""Language models: tiny checkpoints of every family with random weights, built without quantisation, beside
`transformers` in float64; from Hugging Face folders and from GGUF files, and GGUF files in each of its types.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from zoo.llm_report import TYPES_NAME, write_section
from zoo.model import import_torchvision

TOKENS = 60
# Lengths of calls: of prompts, and of a prompt and one token after the other. Windows are of 8 tokens.
PREFILL = ((32, 28), (1, 7, 16, 29, 7))
CALLS = {"prefill": PREFILL, "decode": ((5, *(1,) * (TOKENS - 5)),)}
EXACT = 1e-5  # the largest error, or three times that of float32 in transformers
QUANTIZED = ("llama", "qwen3", "gemma2", "phi3", "gpt_neox", "mixtral")
# Rows of whole blocks of 256 weights.
WIDE = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64, "query_pre_attn_scalar": 64}
Record = dict[str, Any]
Calls = Mapping[str, tuple[tuple[int, ...], ...]]


def main(options: argparse.Namespace) -> int:
    import_torchvision()  # transformers imports it
    from architecture_goldens import CHECKPOINTS
    from gguf_blocks import TYPES

    tasks: dict[str, Callable[[], Record]] = {name: partial(measure, name) for name in CHECKPOINTS}
    tasks |= {f"{TYPES_NAME}{kind}": partial(measure_type, kind) for kind in TYPES}
    file = options.folder / "llm.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    results = read_records(file)
    for name, task in tasks.items():
        if not re.search(options.filter, name) or (name in results and options.rerun != "all"):
            continue
        found = {"name": name, **task()}
        with file.open("a") as lines:
            lines.write(json.dumps(found) + "\n")
        print(found, flush=True)
    results = {name: record for name, record in read_records(file).items() if name in tasks}
    write_section([results[name] for name in tasks if name in results])
    return 0 if all(is_right(name, record) for name, record in results.items()) else 1


def is_right(name: str, record: Record) -> bool:
    """F16 is rounded with 8g."""
    grouped = {} if "F16" in name else record.get("grouped", {})
    largest = max([*record["errors"].values(), *grouped.values()], default=0)
    return not record.get("refused") and largest <= max(EXACT, 3 * record.get("eager", 0))


def read_records(file: Path) -> dict[str, Record]:
    """The last record of each name."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {record["name"]: record for record in map(json.loads, lines)}


def measure(name: str) -> Record:
    """The errors of a checkpoint, by source and kind of call; or why it is refused."""
    from architecture_goldens import CHECKPOINTS, make_golden
    from gguf_writer import NOT_IN_GGUF, architecture_of

    record: Record = {"model_type": CHECKPOINTS[name][0], "errors": {}, "refused": ""}
    golden = make_golden(name, prompt())
    with TemporaryDirectory() as folder:
        errors = record["errors"]
        try:
            errors |= errors_of(golden.write_folder(Path(folder)), golden)
            record["build_s"] = errors.pop("build")
            if name not in NOT_IN_GGUF:
                record["architecture"] = architecture_of(golden.config)
                file = golden.write_gguf(Path(folder) / "model.gguf")
                found = errors_of(file, golden)
                errors |= {f"gguf {kind}": found[kind] for kind in ("prefill", "decode")}
        except Exception as error:
            record["refused"] = f"{type(error).__name__}: {error}"
    if max(errors.values(), default=0) > EXACT:
        eager = make_golden(name, prompt(), double=False)
        record["eager"] = relative_error(eager.logits, golden)
    return record


def measure_type(kind: str) -> Record:
    """The errors of GGUF files with matrices of a type, beside the dequantised weights in float64."""
    from architecture_goldens import make_golden
    from gguf_blocks import dequantized_values

    record: Record = {"errors": {}, "grouped": {}}
    for name in QUANTIZED:
        golden = make_golden(name, prompt(), partial(dequantized_values, kind), **WIDE)
        with TemporaryDirectory() as folder:
            file = golden.write_gguf(Path(folder) / "model.gguf", kind)
            for key, quantize in (("errors", None), ("grouped", "8g")):
                record[key][name] = errors_of(file, golden, quantize, {"prefill": PREFILL})["prefill"]
    return record


def prompt() -> list[int]:
    return [int(token) for token in np.random.default_rng(7).integers(0, 32, TOKENS)]


def errors_of(
    source: Path, golden: Any, quantize: str | None = None, calls: Calls = CALLS
) -> dict[str, float]:
    """The largest difference of logits, relative to the largest logit; and processor seconds to build."""
    from checkpoints import logits

    import pteron
    from pteron.llm.export import read_checkpoint
    from pteron.llm.network.options import Options

    bits = 8 if quantize == "8g" else None
    options = Options(quantize, embedding_bits=bits, max_seq_len=32, max_context_len=64, full_logits=True)
    found = {}
    with TemporaryDirectory() as folder:
        file, started = Path(folder) / "model.pte", time.process_time()
        read_checkpoint(source).program(options).write(file)
        found["build"] = time.process_time() - started
        with pteron.load(file) as program:
            for kind, cuts in calls.items():
                differences = []
                for chunks in cuts:
                    with program.sequence() as sequence:
                        differences.append(
                            relative_error(logits(sequence, golden.prompt, list(chunks)), golden)
                        )
                found[kind] = max(differences)
    return found


def relative_error(logits: Any, golden: Any) -> float:
    error = np.abs(logits - golden.logits).max() / np.abs(golden.logits).max()
    return float(np.nan_to_num(error, nan=np.inf))
