"""A method loaded onto a device: everything that its sequences share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from pteron.errors import InputError
from pteron.format.records import MethodRecord
from pteron.gpu import Device
from pteron.gpu.fork import new_lock
from pteron.host.operator import HostOperator
from pteron.ops.target import DIGITS, Target
from pteron.passes import Prepared
from pteron.plan import Compiled
from pteron.runtime.session import Counters, Session
from pteron.runtime.specs import ValueSpec, describe

DIGITS_VARIABLE = "PTERON_DIGITS"


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
        digits: int = Target().digits,
        *,
        check_integers: bool = False,
    ) -> None:
        self.where = f"{file}, method {record.name}"
        self.record = record
        self.operators = operators
        self.device = device
        self.lock = device.lock if device else new_lock()
        self.counters = Counters()
        self.checked = [prepared.graph for prepared in graphs] if check_integers else []
        self.sessions: list[Session] = []
        self._compiled: list[Compiled] = []
        self._specs: tuple[tuple[ValueSpec, ...], tuple[ValueSpec, ...]] | None = None
        try:
            for prepared in graphs:
                assert device is not None
                compiled = Compiled(prepared, replace(device.target, digits=digits))
                self._compiled.append(compiled)
                self.sessions.append(Session(compiled.executable, device, self.counters, compiled))
        except BaseException:
            self.close()
            raise

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


def chosen_digits(wanted: int | None) -> int:
    """How many int8 digits represent an activation in products with 4-bit weights: `wanted`, or
    PTERON_DIGITS, or the default, which is as exact as f32."""
    named = os.environ.get(DIGITS_VARIABLE, "").strip()
    if wanted is None and not named:
        return Target().digits
    allowed = {str(digits): digits for digits in DIGITS}
    choice = named if wanted is None else str(wanted)
    if choice not in allowed:
        source = f"{DIGITS_VARIABLE}={named!r}" if wanted is None else f"digits={wanted!r}"
        raise InputError(f"{source}: activations are split into {' or '.join(allowed)} digits")
    return allowed[choice]
