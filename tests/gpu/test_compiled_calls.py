"""Calls of compiled modules: structures, names, dims with ranges; before `save` and after `load`."""

# mypy: disable-error-code="misc, attr-defined"
# (torch is untyped to mypy, and so are classes that derive from its own)

from __future__ import annotations

import copy
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pteron
from pteron import CompiledModule, InputError, LoweringError, PteronError, ShapeError

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from small_modules import Counting, same  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.export import Dim  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.usefixtures("compiled_folder")]


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclass
class Batch:
    values: Tensor
    mask: Tensor
    weight: Tensor | None = None


class Structured(nn.Module):
    """A dataclass in; a named tuple, a dataclass and two of torch.return_types out."""

    def forward(self, input: Tensor, batch: Batch, *, more: dict[str, Tensor]) -> Any:
        pair = Pair(batch.values * 2, batch.mask)
        return torch.topk(input, 3), pair, Batch(more["z"] + 1, input), {"k": input.max(1)}


def arguments(rows: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    batch = Batch(torch.randn(rows), torch.randn(2 * rows))
    return (torch.randn(rows, 7), batch), {"more": {"z": torch.randn(3)}}


@pytest.fixture(scope="module")
def structured(compiled_folder: Path) -> CompiledModule:
    rows = Dim("rows", min=2, max=11)
    args, kwargs = arguments(5)
    shapes = ({0: rows}, [{0: rows}, {0: 2 * rows}], {"z": {0: Dim.AUTO(max=7)}})
    return pteron.compile(Structured(), args, kwargs, dynamic_shapes=shapes)


@pytest.fixture(scope="module")
def saved(structured: CompiledModule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model.pte"
    structured.save(path)
    return path


def check_structured(compiled: CompiledModule) -> None:
    for rows in (2, 7, 11):
        args, kwargs = arguments(rows)
        found, expected = compiled(*args, **kwargs), Structured()(*args, **kwargs)
        assert [type(part) for part in found] == [type(part) for part in expected]
        same(found[0].values, expected[0].values)
        assert torch.equal(found[0].indices, expected[0].indices)
        same(tuple(found[1]), tuple(expected[1]))
        same((found[2].values, found[2].mask), (expected[2].values, expected[2].mask))
        assert found[2].weight is None
        assert type(found[3]["k"]) is torch.return_types.max
    args, kwargs = arguments(4)
    by_name = compiled(**kwargs, batch=args[1], input=args[0])  # as positional arguments of the module
    same(by_name[0].values, compiled(*args, **kwargs)[0].values)


def test_structures(structured: CompiledModule, saved: Path) -> None:
    check_structured(structured)
    with CompiledModule.load(saved) as loaded:
        check_structured(loaded)
        assert "Structured" in repr(loaded)
        assert "(loaded)" in str(loaded)


X, Z = torch.zeros(4, 7), {"z": torch.zeros(3)}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (((torch.zeros(1, 7), Batch(X[0], X[0])), {"more": Z}), ShapeError,
         r"^input: dim 0 \(rows\) of \[1, 7\] must be from 2 to 11"),
        (((X, Batch(X[:, 0], X[:3, 0])), {"more": Z}), ShapeError,
         r"batch_mask: dim 0 of \[3\] must be from 4"),
        (((X, Batch(X[:, 0], X[0])), {"more": Z}), ShapeError, r"batch_mask: .* must be 2\*rows = 8"),
        (((X, Batch(X[:3, 0], X[0])), {"more": Z}), ShapeError,
         r"batch_values: dim 0 \(rows\) of \[3\] must be 4, as dim 0 of input"),
        (((X[0], Batch(X[:3, 0], X[0])), {"more": Z}), ShapeError, r"input: expected \[rows, 7\], got \[7\]"),
        (((X, Batch(X[0], X[0])), {"more": {"y": X}}), InputError,
         "more: expected dict with z, got dict with y"),
        (((X, (X, X)), {"more": Z}), InputError,
         "differs from the example: batch: expected Batch with values, mask, got tuple of 2"),
        (((X, Batch(X, X, X)), {"more": Z}), InputError, "batch: .* got Batch with values, mask, weight"),
        (((X, Batch(X, [X])), {"more": Z}), InputError,
         r"batch\.mask: expected a tensor or number, got list of 1"),
        (((X,), {"more": Z, "most": Z}), InputError,
         "the arguments input, batch, more; missing: batch; not in the example: most"),
        (((X, X, X), {"more": Z}), InputError, r"2 positional arguments \(input, batch\), got 3"),
        (((X,), {"more": Z, "input": X}), InputError, "input is given by position and by name"),
    ],
)  # fmt: skip
def test_refused(structured: CompiledModule, call: Any, error: type[Exception], message: str) -> None:
    args, kwargs = call
    with pytest.raises(error, match=message):
        structured(*args, **kwargs)


def test_loading_without_torch(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        PteronError, match=r"unlike pteron\.load, needs the Python package 'torch': pip install"
    ):
        CompiledModule.load(saved)


def test_flat_inputs_and_outputs(saved: Path) -> None:
    """`pteron.load` knows names, minima and static dims."""
    with pteron.load(saved) as program:
        method = program.forward
        assert [str(spec) for spec in method.inputs] == [
            "f32[2..11, 7]",
            "f32[2..11]",
            "f32[4..22 by 2]",
            "f32[2..7]",
        ]
        assert [spec.shape_min for spec in method.inputs] == [(2, 7), (2,), (4,), (2,)]
        names = [spec.name for spec in method.outputs]
        assert names[:4] == ["output_0_values", "output_0_indices", "output_1_first", "output_1_second"]
        assert names[-1] == "output_3_k_indices"
        assert str(method.outputs[0]) == "f32[2..11, 3]"
        (x, batch), kwargs = arguments(3)
        given = {
            "input": x,
            "batch_values": batch.values,
            "batch_mask": batch.mask,
            "more_z": kwargs["more"]["z"],
        }
        same(method(**given)[2], batch.values * 2)
        with pytest.raises(ShapeError, match=r"input 0 \(input\): dim 0 is 0, expected from 2 to 11"):
            method(**given | {"input": x[:0]})
        with pytest.raises(InputError, match="no input 'mask'; it has input, batch_values"):
            method(**given, mask=x)


def test_states_survive(tmp_path: Path) -> None:
    module = Counting()
    compiled = pteron.compile(module, (torch.randn(1, 3),))
    compiled(torch.randn(1, 3))
    compiled.save(tmp_path / "model.pte")
    loaded, eager = CompiledModule.load(tmp_path / "model.pte"), copy.deepcopy(module)
    for _ in range(3):
        x = torch.randn(1, 3)
        given = x.clone()
        same(loaded(given), eager(x))
        same(given, x)
    names = {spec.name for spec in loaded.program.forward.inputs}
    assert names == {"x"}


def test_submitted_calls(structured: CompiledModule) -> None:
    """With state: in the order of submission; writes to inputs come with the result. And without."""
    module = Counting()
    compiled = pteron.compile(module, (torch.randn(1, 3),))
    given = [torch.randn(1, 3) for _ in range(4)]
    before = [x.clone() for x in given]
    expected = [module(x) for x in (each.clone() for each in before)]
    expected = [tuple(part.clone() for part in each) for each in expected]
    compiled.reset()
    pending = [compiled.submit(x) for x in given[:3]]
    assert all(map(torch.equal, given, before))
    for x, old, each, answer in reversed([*zip(given, before, pending, expected, strict=False)]):
        found = each.result()
        same(found[1:], answer[1:])
        same(x, old + 1)
    same(next(compiled.map(given[3:]))[2], expected[3][2])
    calls = [arguments(rows) for rows in (2, 7, 3)]
    submitted = [structured.submit(*args, **kwargs) for args, kwargs in calls]
    for (args, kwargs), pending_call in zip(calls, submitted, strict=True):
        same(pending_call.result()[0].values, Structured()(*args, **kwargs)[0].values)


class Parts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a, b, c = x.split(2, dim=2)
        d, e = x.chunk(2, dim=2)
        f, g = torch.split(x, [3, 3], dim=2)
        return (a * b + c).sum(2) + (d * e - f * g).sum(2) + torch.stack(x.unbind(2)).sum(0)


class Halves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a, b = x.split(3, 2)
        return a * b


@pytest.mark.long
@pytest.mark.parametrize("partitioner", ["pteron", "vulkan"])
def test_parts_with_dynamic_dims(partitioner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ExecuTorch fixes the dims of a split; a dim that lowering fixes is refused."""
    shapes = ({0: Dim("batch", max=7), 1: Dim("length", min=1, max=12)},)
    example = (torch.randn(2, 5, 6),)
    compiled = pteron.compile(Parts(), example, dynamic_shapes=shapes, partitioner=partitioner)
    for batch, length in itertools.product((1, 5, 7), (1, 12)):
        x = torch.randn(batch, length, 6)
        same(compiled(x), Parts()(x))
    if partitioner == "pteron":
        return
    monkeypatch.setattr("pteron.export.graph_passes._split_with_sizes", lambda *_: NotImplemented)
    with pytest.raises(
        LoweringError,
        match=r"Halves: dim 0 of x \(batch\) is declared as dynamic, from \d to 7, but "
        r"aten\.split_with_sizes_copy\.default requires it to be 2",
    ):
        pteron.compile(Halves(), example, dynamic_shapes=shapes, partitioner="vulkan", use_cache=False)


def test_convolution_keeps_static_dims(tmp_path: Path) -> None:
    module = nn.Conv2d(3, 4, 3).eval()
    compiled = pteron.compile(
        module, (torch.randn(2, 3, 9, 9),), dynamic_shapes=({0: Dim("batch", max=8)},), partitioner="vulkan"
    )
    compiled.save(tmp_path / "model.pte")
    with pteron.load(tmp_path / "model.pte") as program:
        assert [str(spec) for spec in program.forward.inputs] == ["f32[≤8, 3, 9, 9]"]
