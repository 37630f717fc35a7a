"""The examples of the guides that compile modules run, each page from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("executorch")
pytestmark = [pytest.mark.export, pytest.mark.usefixtures("compiled_folder")]
DOCS = Path(__file__).parents[2] / "docs"
SIZES = [(97, 64), (128, 33), (97, 64), (41, 127)]  # of photos
if not DOCS.is_dir():
    pytest.skip("docs/ is only in the repository", allow_module_level=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(page: str) -> dict[str, Any]:
    """The names that the examples of a page define."""
    names: dict[str, Any] = {"__name__": page}
    for example in re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.DOTALL):
        exec(example, names)
    return names


@pytest.mark.parametrize("page", ["streams", "training"])
def test_examples(page: str, folder: Path) -> None:
    assert run(page)


def test_a_folder_of_photos(folder: Path) -> None:
    (folder / "photos").mkdir()
    for number, size in enumerate(SIZES):
        Image.effect_noise(size, 64).save(folder / "photos" / f"{number}.png")
    names = run("photos")
    for number, (width, height) in enumerate(SIZES):
        photo = names["read"]([folder / "photos" / f"{number}.png"])
        assert photo.shape == (1, height // 8 * 8, width // 8 * 8, 3)
        expected = names["model"](names["torch"].from_numpy(photo))[0].numpy()
        with Image.open(folder / "masks" / f"{number}.png") as mask:
            same = names["np"].asarray(mask) == expected
        assert same.mean() > 0.99  # two classes may be as good as equal
