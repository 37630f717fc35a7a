"""The kernels of sites, as pages get them, compile with Dawn for all variants: with f16, with subgroups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dawn_compiler import DawnCompiler, DawnMissingError

from pteron.web import export_web
from pteron.web.variants import TARGETS


@pytest.fixture(scope="module")
def dawn() -> DawnCompiler:
    try:
        return DawnCompiler.shared()
    except DawnMissingError as reason:
        pytest.skip(str(reason))


def modules(folder: Path) -> dict[str, Any]:
    """All kernels by their text, with names."""
    index = json.loads((folder / "program.json").read_bytes())
    assert [variant["name"] for variant in index["variants"]] == list(TARGETS)
    plans = [json.loads((folder / variant["file"]).read_bytes()) for variant in index["variants"]]
    return {text: name for plan in plans for name, text, *_ in plan["modules"]}


@pytest.mark.parametrize("name", ["tiny_llama_q4_fp16", "tiny_llama_8da4w"])
def test_kernels_of_a_site(dawn: DawnCompiler, models: Path, tmp_path: Path, name: str) -> None:
    export_web(models / f"{name}.pte", tmp_path, variants=list(TARGETS), check=False, page="generic")
    found = modules(tmp_path)
    assert any(text.startswith("enable subgroups;") for text in found)
    assert any("enable f16;" in text for text in found) == ("fp16" in name)
    assert not any("//" in text for text in found)
    handle, errors = dawn.device.handle, dawn.device.library.errors
    wrong = []
    for text, kernel in found.items():
        try:
            handle.create_shader_module(code=text)
        except errors as error:
            wrong.append(f"{kernel}: {error}")
    assert not wrong
