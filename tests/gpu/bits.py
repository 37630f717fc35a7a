"""Results of two ways that round alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.gpu import Device


def assert_same_bits(
    found: npt.NDArray[Any], wanted: npt.NDArray[Any], device: Device, rtol: float = 1e-5
) -> None:
    """Equal to the last bit; or nearly, on a GPU, whose compiler fuses a product and a sum in one kernel and
    not in another."""
    if device.adapter.is_cpu:
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol / 10)
