"""Whether replicas fit on machines, and the message if they do not; without Ray."""

from __future__ import annotations

from typing import Any

import pytest

from pteron.serving.cluster import Options
from pteron.serving.cluster.options import missing_resources

SMALL: dict[str, float] = {"CPU": 2.0, "memory": 1e9}
LARGE: dict[str, float] = {"CPU": 8.0, "GPU": 2.0}


@pytest.mark.parametrize(
    ("asked", "machines", "said"),
    [
        ({}, [SMALL], None),
        ({"replicas": 2}, [SMALL], None),
        ({"replicas": 3}, [SMALL], "each of 3 replicas needs 1 CPU; there is room for 2: the machine has 2"),
        ({"replicas": (1, 9)}, [SMALL], None),  # as many as fit
        ({"replicas": 3, "cpus": 1.5}, [SMALL, LARGE], None),  # a replica cannot span two machines
        ({"replicas": 99, "cpus": 0}, [SMALL], None),
        (
            {"gpus": 1},
            [SMALL],
            "a replica needs 1 GPU and 1 CPU; there is room for 0: the machine has no GPU and 2 CPUs",
        ),
        ({"gpus": 1}, [SMALL, LARGE], None),
        (
            {"gpus": 1, "replicas": 3, "cpus": 0},
            [SMALL, LARGE],
            "each of 3 replicas needs 1 GPU; there is room for 2: 2 machines have no GPU; 2 GPUs",
        ),
        ({"gpus": 0.1, "replicas": 20, "cpus": 0}, [LARGE], None),
        ({"gpus": 4}, [LARGE, LARGE], "room for 0"),
        ({}, [], "a replica needs 1 CPU; there is room for 0: 0 machines have nothing"),
    ],
    ids=str,
)
def test_room(asked: dict[str, Any], machines: list[dict[str, float]], said: str | None) -> None:
    found = missing_resources(Options("m", "n", **asked), machines)
    assert (found is None) == (said is None)
    assert (said or "") in (found or "")
