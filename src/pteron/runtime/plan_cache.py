"""A cache of an executable's recorded plans, which take PLAN_BYTES_MAX at most.

A dim of an input that was smaller than its maximum once is live from then on: plans carry it as an
expression, and their guards say for which sizes they hold. Sizes of 0 and 1 are never live: they change what
broadcasts and what is empty."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from pteron.errors import PteronError
from pteron.gpu import Arena, Device, KernelKey, Recording, Weights
from pteron.gpu.worker_pool import gc_paused
from pteron.ops.terms import dim_id
from pteron.plan import Compiled, Executable, Plan, Shapes, TensorPort

PLAN_BYTES_MAX = 256 << 20  # with the kernels that they use
_REFUSED_MAX = 4  # sizes of a key; then each new one is planned alone
_SHAPES_KEPT = 256  # shapes whose live dims are remembered
Dims: TypeAlias = dict[int, int]  # sizes of live dims, by `dim_id`
Found: TypeAlias = tuple[Recording, list[int]]  # and the numbers of its live terms


class Made(NamedTuple):
    """A new plan: what it is kept under, and the live integers and dims that it was made for."""

    key: Shapes
    plan: Plan
    values: Mapping[int, int]


class PlanCache:
    """Plans by shapes, where -1 is a live dim. There may be several plans for one key; the guards of a
    plan say for which live dims and integers it is valid."""

    def __init__(
        self,
        executable: Executable,
        compiled: Compiled | None,
        device: Device,
        arena: Arena,
        weights: Weights,
    ) -> None:
        self._executable = executable
        self._compiled = compiled
        self._device = device
        self._arena = arena
        self._weights = weights
        self._kept: dict[Shapes, list[Recording]] = {}
        self._live: set[tuple[int, int]] = set()
        self._refused: dict[Shapes, set[Shapes]] = {}  # by key: sizes that some operator needs as plain ones
        self._known: OrderedDict[Shapes, tuple[Shapes, Dims]] = OrderedDict()
        self._last: dict[Shapes, Found] = {}
        self._used: OrderedDict[Recording, Shapes] = OrderedDict()  # the key of each; the latest used is last
        self.made = 0

    def find(self, shapes: Shapes, values: Mapping[int, int], *, plain: bool = False) -> Found:
        """The recorded plan for these shapes whose guards hold, and the numbers of its live terms. Makes and
        records the plan if the cache does not have it. A `plain` plan is for these shapes alone."""
        if plain:
            known = self._held(shapes, values)
            return known or self.keep(*self.make(shapes, values, shapes, values))
        if last := self._last.get(shapes):
            recording, before = last
            numbers = recording.plan.numbers_again(before, values)
            if numbers is not None:
                self._used.move_to_end(recording)
                return recording, numbers
        found = self._find(shapes, values)
        if len(self._last) >= _SHAPES_KEPT:
            self._last.clear()
        self._last[shapes] = found
        return found

    def lookup(
        self, shapes: Shapes, values: Mapping[int, int], *, plain: bool = False
    ) -> tuple[Found | None, Shapes, Mapping[int, int]]:
        """The kept plan, if any; what a plan for these shapes is kept under, and its live integers and
        dims."""
        found = self._held(shapes, values)
        if found or plain:
            return found, shapes, values
        key, dims = self._known.get(shapes) or self._with_live_dims(shapes)
        everything = {**values, **dims}
        found = self._held(key, everything) if dims else None
        refused = self._refused.get(key, ())
        if found is None and (shapes in refused or len(refused) == _REFUSED_MAX):
            return None, shapes, values
        return found, key, everything

    @gc_paused()  # a plan is thousands of objects, and none of them is garbage
    def make(
        self, shapes: Shapes, values: Mapping[int, int], key: Shapes, everything: Mapping[int, int]
    ) -> Made:
        """A new plan for what `lookup` found none for: with live dims, unless an operator needs
        plain sizes. Needs no lock."""
        if self._compiled is not None and key != shapes:
            with suppress(PteronError):  # a plan for these shapes alone raises it
                return Made(key, self._compiled.plan(shapes, everything), everything)
        plan = self._plan(shapes, values)
        if key != shapes and len(refused := self._refused.setdefault(key, set())) < _REFUSED_MAX:
            refused.add(shapes)
        return Made(shapes, plan, values)

    def _find(self, shapes: Shapes, values: Mapping[int, int]) -> Found:
        found, key, everything = self.lookup(shapes, values)
        return found or self.keep(*self.make(shapes, values, key, everything))

    def _held(self, key: Shapes, values: Mapping[int, int]) -> Found | None:
        """The kept plan that holds for these live integers and dims."""
        for recording in self._kept.get(key, ()):
            numbers = recording.plan.numbers(values)
            if numbers is not None:
                self._used.move_to_end(recording)
                return recording, numbers
        return None

    def keep(self, key: Shapes, plan: Plan, values: Mapping[int, int]) -> Found:
        """Record a plan and keep it."""
        numbers = plan.numbers(values)
        assert numbers is not None  # it was made for these values
        recording = Recording(self._device, plan, self._arena, self._weights, numbers)
        self.made += 1
        self._kept.setdefault(key, []).insert(0, recording)
        self._used[recording] = key
        self._forget_oldest()
        return recording, numbers

    def close(self) -> None:
        for recording in self._used:
            recording.close()
        self._used.clear()
        self._kept.clear()
        self._last.clear()

    def _with_live_dims(self, shapes: Shapes) -> tuple[Shapes, Dims]:
        """The key of plans for these shapes, and the sizes of their live dims."""
        ports = [port if isinstance(port, TensorPort) else None for port in self._executable.inputs]
        given = [
            (index, dim, size, port.shape_max[dim])
            for index, (port, shape) in enumerate(zip(ports, shapes, strict=True))
            if port and shape
            for dim, size in enumerate(shape)
        ]
        smaller = {(index, dim) for index, dim, size, most in given if 1 < size < most}
        if not smaller <= self._live:
            self._live |= smaller
            self._known.clear()
        live = {(index, dim) for index, dim, size, _ in given if size > 1} & self._live
        key = tuple(
            shape and tuple(-1 if (index, dim) in live else size for dim, size in enumerate(shape))
            for index, shape in enumerate(shapes)
        )
        dims = {
            dim_id(port.id, dim): size
            for index, dim, size, _ in given
            if (index, dim) in live and (port := ports[index])
        }
        if len(self._known) >= _SHAPES_KEPT:
            self._known.popitem(last=False)
        self._known[shapes] = key, dims
        return key, dims

    def _plan(self, shapes: Shapes, values: Mapping[int, int]) -> Plan:
        if self._compiled is None:  # the executable has its plan
            (plan,) = self._executable.plans[shapes]
            return plan
        return self._compiled.plan(shapes, values)

    def _forget_oldest(self) -> None:
        """Forget the plans that were used longest ago, until the others fit. The latest stays."""
        while len(self._used) > 1 and self.bytes > PLAN_BYTES_MAX:
            self._last.clear()  # it would keep recordings alive
            recording, key = self._used.popitem(last=False)  # freed with its last user
            self._kept[key].remove(recording)
            if not self._kept[key]:
                del self._kept[key]

    @property
    def bytes(self) -> int:
        """Memory of the plans and of the kernels that they use, estimated."""
        kernels = set[KernelKey]().union(*(recording.kernels for recording in self._used))
        own = sum(recording.bytes for recording in self._used)
        return own + sum(map(self._device.kernel_bytes, kernels))
