"""A method as it was loaded onto a device: what all sequences of calls to it share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pteron.format import MethodRecord
from pteron.gpu import Device
from pteron.gpu.fork import new_lock
from pteron.host.operator import HostOperator
from pteron.ops import Target
from pteron.passes import Prepared
from pteron.plan import Compiled
from pteron.runtime.call_lock import CallLock
from pteron.runtime.session import Counters, Session
from pteron.runtime.specs import ValueSpec, describe


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
        self.turn = CallLock()
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
        """What the method takes and gives."""
        if self._specs is None:
            self._specs = describe(self.record, self._compiled)
        return self._specs

    def close(self) -> None:
        """Free the GPU memory that sequences share."""
        for session in self.sessions:
            session.close()
