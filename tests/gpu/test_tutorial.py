"""The code of docs/add-an-operator.md runs as printed, and its operators are not Pteron's own already."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import check
import pytest
import torch
from arguments import tensor

from pteron.families.elementwise import unary
from pteron.ops import OPERATORS

NAMES = {"aten.softshrink.default", "aten.tril.default", "pteron.triu_or.default"}
PAGE = Path(__file__).parents[2] / "docs" / "add-an-operator.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def run_test(code: str, name: str) -> None:
    names: dict[str, Any] = {**vars(check), "tensor": tensor, "torch": torch}
    exec(code, names)
    names[name]()


@pytest.fixture(scope="module", autouse=True)
def without_them_afterwards() -> Iterator[None]:
    """The operators stay until the fixtures of each test have compiled their kernels for browsers."""
    assert not NAMES & OPERATORS.keys(), "Pteron has these operators: the tutorial needs others"
    yield
    for name in NAMES:
        OPERATORS.pop(name, None)
    sys.modules.pop("tutorial_family.triangle", None)


def test_an_element_wise_operator() -> None:
    (_, definition), (_, test) = BLOCKS[:2]
    exec(definition, vars(unary))
    run_test(test, "test_softshrink")


def test_a_new_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, module), (_, kernel), (_, test) = BLOCKS[2:5]
    family = tmp_path / "tutorial_family"
    family.mkdir()
    (family / "__init__.py").touch()
    (family / "triangle.py").write_text(module)
    (family / "triangle.wgsl").write_text(kernel)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("tutorial_family.triangle")
    run_test(test, "test_tril")
    run_test(test, "test_triu_or")
