"""State in programs of ExecuTorch's own partitioner: what docs/from-executorch.md says of it."""

# mypy: disable-error-code="misc, attr-defined"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pteron
from pteron import GraphError

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner  # noqa: E402
from executorch.exir import to_edge_transform_and_lower  # noqa: E402
from small_modules import same  # noqa: E402
from torch import Tensor, nn  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.usefixtures("without_patterns")]
PAGE = Path(__file__).parents[2] / "docs" / "from-executorch.md"
Write = Callable[[Any, Tensor], Tensor]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, without_patterns: None) -> dict[str, Any]:
    """The names that the examples of the page define, and the folder where they ran."""
    folder = tmp_path_factory.mktemp("page")
    names: dict[str, Any] = {"__name__": "page", "folder": folder}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for example in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
            exec(example, names)
    return names


class Writing(nn.Module):
    def __init__(self, write: Write) -> None:
        super().__init__()
        self.write = write
        self.register_buffer("h", torch.arange(4.0)[None])
        self.register_buffer("g", torch.ones(1, 4))
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.write(self, x)


def exported(write: Write) -> Any:
    torch.manual_seed(0)
    return torch.export.export(Writing(write).eval(), (torch.ones(1, 4),))


def lowered(program: Any, **options: bool) -> bytes:
    partitioner = VulkanPartitioner(options)
    return bytes(to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch().buffer)


def in_place(module: Any, x: Tensor) -> Tensor:
    module.h.mul_(0.9).add_(x)
    return module.h * 2


def cell(module: Any, x: Tensor) -> Tensor:
    module.h.copy_(module.cell(x, module.h))
    return module.h + module.g


def old_value_later(module: Any, x: Tensor, one: float | None = None) -> Tensor:
    new = 0.5 * module.h + x
    shown = new - module.h
    module.h.copy_(new if one is None else new * one)
    return shown


def rotated(module: Any, x: Tensor, one: float | None = None) -> Tensor:
    h, g = module.g * 1.5, module.h + x
    module.h.copy_(h if one is None else h * one)
    module.g.copy_(g if one is None else g * one)
    return h - g


def normed(module: Any, x: Tensor, one: float | None = None) -> Tensor:
    new = nn.functional.layer_norm(module.h + x, (4,))
    module.h.copy_(new if one is None else new * one)
    return new * 2


WRONG: dict[Callable[..., Tensor], list[str]] = {old_value_later: ["h"], rotated: ["h"], normed: ["h"]}


def test_the_example(page: dict[str, Any]) -> None:
    eager = page["Smooth"]()
    method = pteron.load(page["folder"] / "smooth.pte").forward
    for x in torch.randn(3, 1, 4):
        same(method(x)[0], eager(x))


@pytest.mark.parametrize("write", [in_place, cell, *WRONG])
def test_the_check(write: Write, page: dict[str, Any]) -> None:
    assert list(page["wrong_states"](exported(write))) == WRONG.get(write, [])


@pytest.mark.long
@pytest.mark.parametrize("write", WRONG)
def test_what_to_write_instead(write: Callable[..., Tensor], page: dict[str, Any]) -> None:
    program = exported(lambda module, x: write(module, x, 1.0))
    assert list(page["wrong_states"](program)) == []
    eager, method = Writing(lambda module, x: write(module, x)), None
    method = pteron.load(lowered(program, alias_buffer_mutations=True)).forward
    for x in torch.randn(4, 1, 4):
        same(method(x)[0], eager(x))


def test_a_plain_export() -> None:
    with pytest.raises(GraphError, match=r'VulkanPartitioner\(\{"alias_buffer_mutations": True\}\)'):
        pteron.load(lowered(exported(in_place)))
