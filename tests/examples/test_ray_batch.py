"""examples/ray_batch.py: its workers return what the program returns.

`scripts/test --ray` runs the tests with Ray, in an environment without PyTorch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="Pillow comes with the extra `examples`")
pytest.importorskip("tokenizers", reason="comes with the extra `llm`")
import ray_batch  # noqa: E402  # imports what the extras bring
from letters import letters_mean, write_letters  # noqa: E402

import pteron  # noqa: E402
from pteron.extras import has_torch  # noqa: E402

IMAGES = Path(__file__).parents[1] / "fixtures" / "programs" / "images.pte"  # of 17 rows and 16 columns


@pytest.fixture
def photographs(tmp_path: Path) -> list[Path]:
    generator = np.random.default_rng(7)
    paths = []
    for index in range(11):
        pixels = generator.integers(0, 256, (23 + index, 40, 3), np.uint8)
        path = tmp_path / f"{index}.png"
        Image.fromarray(pixels).save(path)
        paths.append(path)
    return paths


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_batch, "own_adapter", lambda: None)


def expected(path: Path) -> Any:
    """The scores of a photograph, from the program alone."""
    image = ray_batch.read_photograph(path, 17, 16)
    assert image.shape == (1, 3, 17, 16)
    with pteron.load(IMAGES) as program:
        return program["forward"](image)[0].astype(np.float64)[0]


@pytest.mark.usefixtures("without_ray")
def test_a_worker_classifies(photographs: list[Path]) -> None:
    found = ray_batch.Classifier(str(IMAGES))({"path": np.array([str(path) for path in photographs])})
    assert found["worker"].tolist() == [str(os.getpid())] * 11
    for path, best, probability in zip(photographs, found["class"], found["probability"], strict=True):
        scores = expected(path)
        assert best == scores.argmax()
        powers = np.exp(scores)
        np.testing.assert_allclose(probability, powers.max() / powers.sum(), rtol=1e-6)


@pytest.mark.skipif(not has_torch(), reason="needs PyTorch")
def test_a_photograph_is_read_as_the_other_example_reads_it(photographs: list[Path]) -> None:
    from classify_image import read_photograph

    for path in photographs[:3]:
        np.testing.assert_array_equal(
            ray_batch.read_photograph(path, 224, 224), read_photograph(path).numpy()
        )


@pytest.mark.long
@pytest.mark.export
@pytest.mark.usefixtures("without_ray")
def test_a_worker_embeds(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import rank_sentences
    from models import minilm
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(0)
    words = {f"w{index}": index for index in range(100)} | {"?": 100}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model = minilm.MiniLM(vocabulary=101, positions=64, width=24, heads=3, wide=40, layers=2).eval()
    with rank_sentences.compile_for_any_length(model, tokens_max=37) as compiled:
        compiled.save(tmp_path / "model.pte")
    texts = [" ".join(f"w{(index * 7 + at) % 100}" for at in range(index)) for index in (2, 5, 37, 60)]
    found = ray_batch.Embedder(str(tmp_path))({"text": np.array(texts)})
    for text, vector in zip(texts, found["vector"], strict=True):
        ids = tokenizer.encode(text).ids
        ids = ids if len(ids) <= 37 else [*ids[:36], ids[-1]]
        with torch.no_grad():
            np.testing.assert_allclose(vector, model(torch.tensor(ids))[0], atol=1e-4)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="needs the extra `ray`: scripts/test --ray")
    pytest.importorskip("pyarrow", reason="needs ray[data]")
    path = os.pathsep.join([str(Path(ray_batch.__file__).parent), os.environ.get("PYTHONPATH", "")])
    workers = {"env_vars": {"PYTHONPATH": path}}  # which find the example, as they do where it is a script
    ray.init(
        num_cpus=3, include_dashboard=False, log_to_driver=False, runtime_env=workers,
        object_store_memory=100 << 20,
    )  # fmt: skip
    yield ray
    ray.shutdown()


@pytest.mark.heavy
def test_photographs_by_two_workers_of_ray(ray: Any, photographs: list[Path]) -> None:
    rows = ray.data.from_items([{"path": str(path)} for path in photographs], override_num_blocks=4)
    done, shares = ray_batch.run(ray_batch.Classifier, str(IMAGES), rows, workers=2, batch=3, gpus=0)
    found = {row["path"]: row["class"] for row in done.take_all()}
    assert found == {str(path): expected(path).argmax() for path in photographs}
    assert sum(share.rows for share in shares) == len(photographs)
    assert all(share.rate > 0 for share in shares)


@pytest.mark.heavy
def test_texts_by_two_workers_of_ray(ray: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command itself, on the cluster that is there."""
    write_letters(tmp_path)
    texts = [f"{'abcdefghijk'[index]} text" * (1 + index % 3) for index in range(11)]
    (tmp_path / "lines.txt").write_text("\n\n".join(texts))
    given = ["texts", str(tmp_path), str(tmp_path / "lines.txt"), "--batch", "2"]
    ray_batch.main([*given, "--output", str(tmp_path / "out")])
    rows = ray.data.read_parquet(str(tmp_path / "out")).take_all()
    assert sorted(row["text"] for row in rows) == sorted(texts)
    for row in rows:
        text = (
            row["text"] if len(row["text"]) <= 16 else row["text"][:15] + row["text"][-1]
        )  # all that it takes
        np.testing.assert_allclose(row["vector"], letters_mean(text), atol=1e-6)
    *workers, last = capsys.readouterr().out.splitlines()
    assert last.startswith(f"11 rows by {len(workers)} workers in ")
    assert sum(int(line.split()[2]) for line in workers) == 11
    assert all(line.endswith(" rows/s") for line in workers)
