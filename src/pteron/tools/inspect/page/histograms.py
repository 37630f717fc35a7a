"""A constant -> a histogram of its elements, of a sample if it is large."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pteron.format.source import contents
from pteron.graph import Constant
from pteron.tools.inputs import as_float
from pteron.tools.inspect.page.report import HistogramDetails

BINS = 64
_PLACES = 16  # samples of a large constant, evenly spaced
_PLACE_BYTES = 4096
_PIECE_BYTES = 1 << 22  # read at a time


def histogram(constant: Constant, *, is_whole: bool, bits: int | None = None) -> HistogramDetails | None:
    """The histogram of a constant's elements, or of the `bits`-bit numbers packed into them; None if no
    element is finite. `is_whole` reads all elements instead of a sample."""
    size = constant.dtype.itemsize
    elements = len(constant.data) // size * (8 * size // bits if bits else 1)
    parts = [_numbers(constant, view, bits) for view in _views(constant, is_whole)]
    if not is_whole:
        parts = [np.concatenate(parts)] if parts else []
    looked_at = sum(map(len, parts))
    parts = [part[np.isfinite(part)] for part in parts]
    finite = sum(map(len, parts))
    if finite == 0:
        return None
    low = min(float(part.min()) for part in parts if len(part))
    high = max(float(part.max()) for part in parts if len(part))
    bins = 1 << bits if bits else BINS
    edges = (-0.5, bins - 0.5) if bits else (low, high)
    scale = 1.0 if np.isfinite(edges[1] - edges[0]) else 0.25  # prevents overflow of the largest f64 range
    limits = (edges[0] * scale, edges[1] * scale)
    counts = np.sum([np.histogram(part * scale, bins, limits)[0] for part in parts], axis=0)
    mean = sum(float((part / finite).sum()) for part in parts)
    return HistogramDetails(
        counts=tuple(counts.tolist()),
        low=low,
        high=high,
        mean=mean,
        looked_at=looked_at,
        elements=elements,
        not_finite=looked_at - finite,
        bits=bits,
    )


def _views(constant: Constant, is_whole: bool) -> Iterator[memoryview]:
    data = constant.data
    if is_whole or len(data) <= _PLACES * _PLACE_BYTES:
        for start in range(0, len(data), _PIECE_BYTES):
            yield contents(data[start : start + _PIECE_BYTES])
        return
    step = (len(data) - _PLACE_BYTES) // (_PLACES - 1) // 8 * 8  # aligned to elements of any type
    for place in range(_PLACES):
        yield contents(data[place * step : place * step + _PLACE_BYTES])


def _numbers(constant: Constant, view: memoryview, bits: int | None) -> npt.NDArray[np.float64]:
    if bits == 4:
        packed = np.frombuffer(view, np.uint8)
        return np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1).astype(np.float64)
    with np.errstate(invalid="ignore"):  # signalling NaNs warn
        return as_float(np.frombuffer(view, constant.dtype.numpy), constant.dtype)
