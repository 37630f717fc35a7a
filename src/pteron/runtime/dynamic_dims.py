"""Which dims of a method's inputs and outputs are dynamic, in which steps and from which size on.

A file of ExecuTorch's only says whether a tensor has a dynamic dim. So dry runs try smaller sizes: of one dim
alone, then with the dims that it may depend on. What a dry run takes, a call takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pteron.format.records import TensorRecord
from pteron.graph import Shape

if TYPE_CHECKING:
    from pteron.runtime.dry_run import DryRun

_NODES_MAX = 40_000  # that dry runs may visit
_RUNS_MIN = 8
Place: TypeAlias = tuple[int, int]  # the value id of an input, a dim of it
Amounts: TypeAlias = dict[Place, int]  # by how much dims become smaller together


class DimRange(NamedTuple):
    """The sizes of a dynamic dim: the maximum less a multiple of `step`, and not below `least`; 0: no minimum
    is known. Dims of one symbol depend on each other: they are as many steps below their maximum."""

    least: int = 0
    step: int = 1
    symbol: str = ""


Ranges: TypeAlias = dict[int, dict[int, DimRange]]  # by value id, then by dim


def find_dynamic_dims(dry: DryRun) -> Ranges:
    """The dynamic dims of inputs and outputs. Tensors that are not there are unknown: the shapes depend on
    values. In a method that is too large to try all, the dims that were not tried count as dynamic."""
    search = _Search(dry)
    return search.inputs() | search.outputs() if search.runs({}) else {}


class _Search:
    def __init__(self, dry: DryRun) -> None:
        self._dry = dry
        self._runs_left = max(_RUNS_MIN, _NODES_MAX // max(1, dry.nodes))
        self._found: Ranges = {}
        self._single: list[Amounts] = []  # single steps of the dims found
        self._sizes: dict[Place, int] = {}  # of the dims that may be dynamic
        self._outputs: dict[frozenset[tuple[Place, int]], tuple[Shape, ...]] = {}  # by amounts
        for id in dry.record.inputs:
            value = dry.record.values[id]
            if isinstance(value, TensorRecord):
                self._found[id] = {}
                if value.dynamism != "static":
                    self._sizes |= {(id, dim): size for dim, size in enumerate(value.sizes) if size > 1}

    def runs(self, amounts: Amounts, times: int = 1) -> bool:
        """Whether the method takes inputs whose dims are smaller by multiples of these amounts."""
        self._runs_left -= 1
        smaller = {place: amount * times for place, amount in amounts.items()}
        shapes: dict[int, Shape] = {}
        for id in {id for id, _ in amounts}:
            value = self._dry.record.values[id]
            assert isinstance(value, TensorRecord)
            shapes[id] = tuple(size - smaller.get((id, dim), 0) for dim, size in enumerate(value.sizes))
        if any(shapes[id][dim] < 1 for id, dim in amounts):
            return False
        outputs = self._dry.outputs(shapes)
        if outputs is not None:
            self._outputs[frozenset(smaller.items())] = outputs
        return outputs is not None

    def inputs(self) -> Ranges:
        alone = [place for place in self._sizes if self.runs({place: 1})]  # most dynamic dims
        for place in alone:
            self._note({place: 1})
        for place in self._sizes:
            if place[1] not in self._found[place[0]]:
                steps = self._steps(place)
                if steps:
                    self._note(steps)
        return self._found

    def outputs(self) -> Ranges:
        """The dims of outputs that differed between runs. The first run was at the maximum."""
        smallest = {
            (id, dim): self._sizes[id, dim] - (range.least or range.step)
            for id, dims in self._found.items()
            for dim, range in dims.items()
        }
        has_least = any(range.least for dims in self._found.values() for range in dims.values())
        at_least = self._outputs[frozenset(smallest.items())] if has_least and self.runs(smallest) else None
        singles = [run for each in self._single if (run := self._outputs.get(frozenset(each.items())))]
        first, *others = (run for amounts, run in self._outputs.items() if self._is_allowed(amounts))
        found: Ranges = {}
        for position, id in enumerate(self._dry.record.outputs):
            value = self._dry.record.values[id]
            if not isinstance(value, TensorRecord):
                continue
            found[id] = {}
            for dim, (size, most) in enumerate(zip(first[position], value.sizes, strict=True)):
                if size != most:  # it depends on live integers, which are 0 here
                    found[id][dim] = DimRange()
                elif any(run[position][dim] != size for run in others):
                    step = gcd(*(size - run[position][dim] for run in singles)) or 1
                    least = at_least[position][dim] if at_least else 0
                    found[id][dim] = DimRange(least if least > step else 0, step)
        return found

    def _is_allowed(self, amounts: Iterable[tuple[Place, int]]) -> bool:
        """Whether all dims that a run made smaller are dynamic: a few runs work by chance."""
        return all(dim in self._found[id] for (id, dim), _ in amounts)

    def _note(self, steps: Amounts) -> None:
        """Note dims that change together. One step works; how many do?"""
        works, fails = 1, 1 + min((self._sizes[place] - 1) // step for place, step in steps.items())
        count = fails - 1
        while works + 1 < fails:
            if self._runs_left <= 0 or self.runs(steps, count):
                works = count
            else:
                fails = count
            count = (works + fails) // 2
        self._single.append(steps)
        symbol = ".".join(map(str, min(steps))) if len(steps) > 1 else ""
        for (id, dim), step in steps.items():
            least = self._sizes[id, dim] - works * step
            self._found[id][dim] = DimRange(least if least > step else 0, step, symbol)

    def _steps(self, place: Place) -> Amounts | None:
        """The smallest amounts by which a dim can be smaller, with the dims that depend on it. A larger step
        than 1 must work twice: other dims sometimes take another size, such as the heads of an attention."""
        size = self._sizes[place]
        for step in (step for step in range(1, size // 2 + 1) if size % step == 0):
            for unit in self._guesses(place):
                if self._runs_left <= 0:
                    return {place: 1}
                amounts = {each: step * factor for each, factor in unit.items()}
                if self.runs(amounts) and (step == 1 or self.runs(amounts, 2)):
                    return self._needed(place, amounts)
        return None

    def _needed(self, place: Place, amounts: Amounts) -> Amounts:
        """The same without dims that need not change with this one."""
        for other in [each for each in amounts if each != place]:
            fewer = {each: amount for each, amount in amounts.items() if each != other}
            if self.runs(fewer):
                amounts = fewer
        return amounts

    def _guesses(self, place: Place) -> Iterator[Amounts]:
        """Units by which dims may change together: the same dim of other inputs in proportion, dims of the
        same size, and a dim that is longer by a constant."""
        size = self._sizes[place]
        yield {place: 1}
        alike = [each for each, other in self._sizes.items() if each[1] == place[1] and other % size == 0]
        in_proportion = {each: self._sizes[each] // size for each in alike}
        if len(alike) > 1:
            yield in_proportion
        equal = {each: 1 for each, other in self._sizes.items() if other == size}
        if len(equal) > 1 and equal != in_proportion:
            yield equal
        for each, other in self._sizes.items():
            if each[0] != place[0] and other > size:
                yield {place: 1, each: 1}
