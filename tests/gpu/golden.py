"""Exported programs and what eager PyTorch answered: a .npz enters, its calls leave; outputs are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """One call of a method: an int is a 0-d int64 array here, as in the files."""

    method: str
    inputs: list[Array]
    outputs: list[Array]


def read_cases(path: Path) -> list[Case]:
    """The successive calls that a .npz file holds."""
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored}
    cases: list[Case] = []
    while any(key.startswith(f"case{len(cases)}_") for key in arrays):
        prefix = f"case{len(cases)}_"
        method = str(arrays.get(f"{prefix}method", "forward"))
        cases.append(Case(method, _row(arrays, f"{prefix}input"), _row(arrays, f"{prefix}output")))
    return cases


def _row(arrays: dict[str, Array], prefix: str) -> list[Array]:
    count = sum(1 for key in arrays if key.startswith(prefix))
    return [arrays[f"{prefix}{index}"] for index in range(count)]


def assert_outputs(found: Sequence[Any], expected: Sequence[Array], tolerance: float = 1e-5) -> None:
    """Same number, dtypes and shapes; values within `tolerance`, integers and booleans exactly."""
    assert len(found) == len(expected)
    for index, (value, golden) in enumerate(zip(found, expected, strict=True)):
        if isinstance(value, int):
            assert golden.ndim == 0 and value == golden, f"output {index}"  # noqa: PT018
            continue
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
        assert array.dtype == golden.dtype, f"output {index}"
        assert array.shape == golden.shape, f"output {index}"
        if golden.dtype.kind == "f":
            np.testing.assert_allclose(
                array, golden, atol=tolerance, rtol=tolerance, err_msg=f"output {index}"
            )
        else:
            np.testing.assert_array_equal(array, golden, err_msg=f"output {index}")
