"""Whether machines have room for replicas: what each has in all -> a sentence where too few fit.

What others hold of it now is not looked at: that comes and goes, and Ray waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pteron.serving.cluster.options import Options

# What one machine has, by Ray's names.
Machine = Mapping[str, float]


def shortage(options: Options, machines: Sequence[Machine]) -> str | None:
    """Why the least replicas do not all fit; None where they do."""
    least, _ = options.range
    needs = {"GPU": options.gpus, "CPU": options.cpus}
    fitting = sum(_fitting(needs, machine) for machine in machines)
    if fitting >= least:
        return None
    wanted = " and ".join(_counted(name, count) for name, count in needs.items() if count)
    owned = "; ".join(
        " and ".join(_counted(name, machine.get(name, 0.0)) for name, count in needs.items() if count)
        for machine in machines
    )
    replicas = "a replica" if least == 1 else f"each of {least} replicas"
    machines_have = "the machine has" if len(machines) == 1 else f"{len(machines)} machines have"
    room = f"{machines_have} {owned or 'nothing'} by Ray's count"
    return f"{replicas} needs {wanted}; there is room for {fitting:.0f}: {room}"


def _fitting(needs: Machine, machine: Machine) -> float:
    """How many replicas one machine takes; without end where they need nothing."""
    # A share as 0.1 is not exact: ten of them are one.
    return min(
        (math.floor(machine.get(name, 0.0) / need + 1e-6) for name, need in needs.items() if need),
        default=math.inf,
    )


def _counted(name: str, count: float) -> str:
    """A number of things, as people say it."""
    return f"no {name}" if not count else f"{count:g} {name}{'' if count <= 1 else 's'}"
