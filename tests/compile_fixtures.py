"""Fixtures of tests that compile modules: an empty cache, and a record of what is lowered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pteron.export import compiling
from pteron.export.lowering import Lowered, lower


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a module of tests keeps its lowered programs."""
    path = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTERON_CACHE", str(path))
        yield path / "compiled"


@pytest.fixture(scope="module")
def without_patterns() -> Iterator[None]:
    """For modules without rotary embeddings: ExecuTorch's partitioner exports its patterns of them anew for
    each program that it lowers, in seconds."""
    registry = pytest.importorskip("executorch.backends.vulkan.patterns")
    with pytest.MonkeyPatch.context() as patch:
        for entry in registry.fusable_patterns.values():
            if entry.get_graphs_fn is not None:
                patch.setattr(entry, "get_graphs_fn", list)
        yield


@pytest.fixture
def lowerings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each program that is lowered from now on."""
    seen: list[object] = []

    def counted(exported: Any, *options: Any) -> Lowered:
        seen.append(exported)
        return lower(exported, *options)

    monkeypatch.setattr(compiling, "lower", counted)
    return seen
