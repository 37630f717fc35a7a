"""Writes a Whisper as a folder that `pteron serve` transcribes sound with.

    python examples/export_whisper.py FOLDER [CHECKPOINT.pt]
    pteron serve FOLDER

CHECKPOINT.pt is one that OpenAI has published (tiny, base, small, medium, large, turbo); by default tiny.en.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.whisper import WEIGHTS, Sizes, read_checkpoint
from transcribe import compile_both

from pteron.package_files import PackageFiles, fetch_files

TOKENIZERS = PackageFiles(
    "mlx-whisper",
    "0.4.3",
    {
        "mlx_whisper/assets/gpt2.tiktoken": (
            "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
        ),
        "mlx_whisper/assets/multilingual.tiktoken": (
            "b34b360dbb493e781e479794586d661700670d65564001f23024971d1f2fa126"
        ),
    },
)
ENGLISH_ONLY = 51864  # tokens of a vocabulary; those of many languages have more


def write_folder(
    folder: Path, encoder: Any, decoder: Any, sizes: Sizes, tokenizer: Path, *, multilingual: bool
) -> Path:
    """The two programs, their tokenizer and a manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, compiled in zip(("encoder", "decoder"), compile_both(encoder, decoder, sizes), strict=True):
        compiled.save(folder / f"{name}.pte")
    shutil.copy(tokenizer, folder / f"tokenizer{tokenizer.suffix}")
    speech = {"decoder": "decoder.pte", "multilingual": multilingual}
    (folder / "pteron.json").write_text(json.dumps({"model": "encoder.pte", "speech": speech}), "utf-8")
    return folder


def main(arguments: Sequence[str]) -> None:
    if len(arguments) not in (1, 2):
        raise SystemExit(__doc__)
    folder, *given = map(Path, arguments)
    (member,) = WEIGHTS.files
    checkpoint = given[0] if given else fetch_files(WEIGHTS, print) / Path(member).name
    sizes, encoder, decoder = read_checkpoint(checkpoint)
    multilingual = sizes.vocabulary > ENGLISH_ONLY
    tokenizer = f"{'multilingual' if multilingual else 'gpt2'}.tiktoken"
    write_folder(
        folder, encoder, decoder, sizes, fetch_files(TOKENIZERS, print) / tokenizer, multilingual=multilingual
    )
    print(f"{folder} is ready: pteron serve {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
