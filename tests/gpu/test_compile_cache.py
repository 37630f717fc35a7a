"""Lowered programs on disk: found by content, made anew where they are damaged, forgotten in time."""

# mypy: disable-error-code="misc, attr-defined"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

import contextlib
import copy
import os
from pathlib import Path
from typing import Any

import pytest

import pteron
from pteron.export import cache

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from small_modules import Small, same  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.usefixtures("compiled_folder")]


def test_cache_knows_content(compiled_folder: Path, lowerings: list[object], tmp_path: Path) -> None:
    module, x = Small(), torch.randn(5, 2)
    first = pteron.compile(module, (x,))
    again = pteron.compile(copy.deepcopy(module), (x + 1,))
    assert (first.was_cached, again.was_cached, len(lowerings)) == (False, True, 1)
    assert first.cache_file == again.cache_file
    assert first.cache_file is not None
    assert first.cache_file.parent == compiled_folder
    same(again(x), x @ module.weight.detach())

    damaged = bytearray(first.cache_file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    first.cache_file.write_bytes(damaged)
    with contextlib.closing(pteron.compile(module, (x,))) as anew:
        assert (anew.was_cached, len(lowerings)) == (False, 2)
        same(anew(x), x @ module.weight.detach())
    assert pteron.compile(module, (x,)).was_cached

    with torch.no_grad():
        module.weight.mul_(2)
    changed = pteron.compile(module, (x,))
    assert not changed.was_cached  # other weights
    same(changed(x), x @ module.weight.detach())
    half = pteron.compile(module, (x,), force_fp16=True)
    assert not half.was_cached  # other options
    assert half(x).dtype == torch.float32
    same(half(x), x @ module.weight.detach(), rtol=1e-2, atol=1e-2)
    assert not list(compiled_folder.glob("*.part"))
    assert half.cache_file is not None
    content, shown = half.cache_file.read_bytes(), str(half)
    half.cache_file.unlink()  # the compiled module still has its bytes
    assert str(half) == shown
    half.save(tmp_path / "model.pte")
    assert (tmp_path / "model.pte").read_bytes() == content


def test_names_are_a_part_of_the_content(compiled_folder: Path, lowerings: list[object]) -> None:
    """The same graph, with an output that has a name."""

    class Named(Small):
        def forward(self, x: Any) -> dict[str, Any]:
            return {"product": super().forward(x)}

    x = torch.randn(7, 2)
    plain, named = (pteron.compile(module, (x,)) for module in (Small(), Named()))
    same(named(x), {"product": plain(x)})
    again = pteron.compile(Small(), (x,))
    assert (named.was_cached, again.was_cached, len(lowerings)) == (False, True, 2)
    same(again(x), plain(x))


def test_without_a_place_for_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path / "file"))
    compiled = pteron.compile(Small(), (torch.ones(3, 2),))
    assert compiled.cache_file is None
    assert "not cached" in str(compiled)
    same(compiled(torch.ones(3, 2)), torch.ones(3, 2) @ Small().weight.detach())


def test_cache_forgets_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTERON_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "BYTES_MAX", 250)
    kept = [cache.keep(f"key{index}", bytes([index]) * 100) for index in range(2)]
    for seconds, path in enumerate(kept):
        assert path is not None
        os.utime(path, (seconds, seconds))
    assert cache.find("key0") == kept[0]  # used after the other
    assert kept[0] is not None
    assert kept[0].stat().st_mtime == 0  # and not changed: another process may have it open
    third = cache.keep("key2", b"x" * 100)
    assert (cache.find("key0"), cache.find("key1"), cache.find("key2")) == (kept[0], None, third)
