"""A method loaded onto a device: everything that its sequences share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from pteron.errors import InputError
from pteron.format.records import MethodRecord
from pteron.gpu import Device
from pteron.gpu.fork import new_lock
from pteron.host.operator import HostOperator
from pteron.ops.target import DIGITS, PRODUCTS, Target
from pteron.passes import Prepared
from pteron.plan import Compiled
from pteron.runtime.dry_run import DryRun
from pteron.runtime.fitting import fitting_dims
from pteron.runtime.session import Counters, Session
from pteron.runtime.specs import ValueSpec, describe
from pteron.runtime.trace import Trace
from pteron.runtime.traced_session import TracedSession

DIGITS_VARIABLE, PRODUCTS_VARIABLE = "PTERON_DIGITS", "PTERON_PRODUCTS"


@dataclass(frozen=True, slots=True)
class Precision:
    """How exactly products are computed: the number of int8 digits of an activation in products with 4-bit
    weights, and whether matrix cores multiply f32 numbers as exactly as f32, or as f16."""

    digits: int = Target().digits
    products: str = Target().products

    @classmethod
    def chosen(
        cls, digits: int | None = None, products: str | None = None, default: Precision | None = None
    ) -> Precision:
        """What the arguments say, or else PTERON_DIGITS and PTERON_PRODUCTS, or `default`. With other
        products than this has, digits are as exact as f32 unless they are chosen too."""
        default, exact = default or cls(), cls()
        kinds = {kind: kind for kind in PRODUCTS}
        kind = _choose("products", products, PRODUCTS_VARIABLE, kinds, default.products)
        splits = {str(count): count for count in DIGITS}
        usual = default if kind == default.products else exact
        return cls(_choose("digits", digits, DIGITS_VARIABLE, splits, usual.digits), kind)

    def of(self, target: Target) -> Target:
        """The target with this precision."""
        return replace(target, digits=self.digits, products=self.products)


def _choose(name: str, wanted: object, variable: str, allowed: Mapping[str, Any], default: Any) -> Any:
    named = os.environ.get(variable, "").strip()
    if wanted is None and not named:
        return default
    choice = named if wanted is None else str(wanted)
    if choice not in allowed:
        source = f"{variable}={named!r}" if wanted is None else f"{name}={wanted!r}"
        raise InputError(f"{source}: {name} can be {' or '.join(allowed)}")
    return allowed[choice]


class NotCopyable:
    """Base of objects that own GPU memory: `copy` and `pickle` raise a TypeError."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: it owns GPU memory; load the program "
            "again, or use program.sequence() for other states"
        )


class LoadedMethod:
    """A method's record and operators, and a session for each of its delegates."""

    def __init__(
        self,
        file: str,
        record: MethodRecord,
        graphs: Sequence[Prepared],
        operators: Sequence[HostOperator],
        device: Device | None,
        precision: Precision | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.trace = trace
        self.where = f"{file}, method {record.name}"
        self.record = record
        self.operators = operators
        self.device = device
        self.lock = device.lock if device else new_lock()
        self.counters = Counters()
        self.sessions: list[Session] = []
        self._compiled: list[Compiled] = []
        self._specs: tuple[tuple[ValueSpec, ...], tuple[ValueSpec, ...]] | None = None
        try:
            for prepared in graphs:
                assert device is not None
                target = precision.of(device.target) if precision else device.target
                compiled = Compiled(prepared, target, may_exceed=True)
                self._compiled.append(compiled)
                about = compiled.executable, device, self.counters, compiled
                self.sessions.append(Session(*about) if trace is None else TracedSession(*about, trace))
            self._warn_of_excess()
        except BaseException:
            self.close()
            raise

    def _warn_of_excess(self) -> None:
        """Say which dims must be lower than their maximum on this device; a DeviceError if none can be."""
        excess = next((compiled.excess for compiled in self._compiled if compiled.excess), None)
        if excess is None:
            return
        found = fitting_dims(DryRun(self.record, self._compiled, in_full=True), self.specs[0])
        if found is None:
            raise excess
        warnings.warn(f"{self.where} runs here with {found}. At its maximum, {excess}", stacklevel=2)

    @property
    def specs(self) -> tuple[tuple[ValueSpec, ...], tuple[ValueSpec, ...]]:
        """The specs of the method's inputs and outputs."""
        if self._specs is None:
            self._specs = describe(self.record, self._compiled)
        return self._specs

    def close(self) -> None:
        """Free the GPU memory that the sequences share."""
        for session in self.sessions:
            session.close()
