"""A program whose maximum shapes exceed the device -> the dims that would have to be lower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from pteron.runtime.specs import ValueSpec, dependent_dims

if TYPE_CHECKING:
    from pteron.runtime.dry_run import DryRun

_Dims: TypeAlias = dict[tuple[int, int], int]  # steps of dims that change together, by input and dim


def fitting_dims(dry: DryRun, inputs: Sequence[ValueSpec]) -> str | None:
    """How low dynamic dims of the inputs must be: each alone, if that is enough for one of them, or all. None
    if nothing fits."""
    groups: list[_Dims] = []
    for input, spec in enumerate(inputs):
        for dim, free in enumerate(spec.dynamic):
            if free and not any((input, dim) in group for group in groups):
                others = dependent_dims(inputs, input, dim, spec.shape_max[dim])
                places = [(input, dim), *((other, at) for other, at, _ in others)]
                groups.append({(index, at): inputs[index].shape_step[at] for index, at in places})
    alone = [text for group in groups if (text := _largest(dry, inputs, [group]))]
    return ", or ".join(alone) or _largest(dry, inputs, groups)


def _largest(dry: DryRun, inputs: Sequence[ValueSpec], groups: Sequence[_Dims]) -> str | None:
    """The largest sizes that fit if all these dims are lower, in proportion to their ranges."""
    counts = [
        min((inputs[i].shape_max[d] - inputs[i].shape_least[d]) // step for (i, d), step in group.items())
        for group in groups
    ]
    most = max(counts, default=0)

    def shapes(part: int) -> list[list[int]]:
        found = [list(spec.shape_max) for spec in inputs]
        for group, count in zip(groups, counts, strict=True):
            for (input, dim), step in group.items():
                found[input][dim] -= step * -(-count * part // most)
        return found

    def fits(part: int) -> bool:
        ids = dry.record.inputs
        return (
            dry.outputs({id: tuple(shape) for id, shape in zip(ids, shapes(part), strict=True)}) is not None
        )

    if not most or not fits(most):
        return None
    low, high = 0, most  # the maximum does not fit
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    sizes = shapes(high)
    places = sorted(place for group in groups for place in group)
    return " and ".join(f"dim {dim} of input {input} at most {sizes[input][dim]}" for input, dim in places)
