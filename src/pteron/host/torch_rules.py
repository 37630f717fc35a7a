"""Checks of arguments that PyTorch's kernels trust: without them a wrong index or contradictory sizes would
read or write memory outside the tensors, or end the process. A rule takes the arguments by name and raises
HostError."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, prod
from typing import Any, TypeAlias

import numpy as np

from pteron.host.operator import require
from pteron.host.values import HostTensor

NamedArguments: TypeAlias = Mapping[str, Any]  # arguments by name, as the interpreter has them
Rule: TypeAlias = Callable[[NamedArguments], None]


# Indices ----------------------------------------------------------------------------------------


def indices_along_dim(given: NamedArguments) -> None:
    """The elements of `index` are places along the dim `dim` of `self`."""
    shape, dim = given["self"].array.shape, given["dim"]
    require(-max(1, len(shape)) <= dim < max(1, len(shape)), f"a tensor {list(shape)} has no dim {dim}")
    _check_indices("index", given["index"], shape[dim] if shape else 1)


def indices_in_lists(given: NamedArguments) -> None:
    """Each tensor of `indices` has places along its own dim, counted from either end."""
    shape, dim = given["self"].array.shape, 0
    for place, index in enumerate(given["indices"]):
        name = f"indices[{place}]"
        if index is None:
            dim += 1
        elif str(index.dtype) in ("bool", "u8"):  # a mask covers as many dims as it has
            found = index.array.shape
            fits = found == shape[dim : dim + len(found)]
            require(fits, f"{name} {list(found)} is no mask of {list(shape)}")
            dim += len(found)
        else:
            require(dim < len(shape), f"{len(given['indices'])} indices for a tensor {list(shape)}")
            _check_indices(name, index, shape[dim], from_end=True)
            dim += 1


def weight_rows(given: NamedArguments) -> None:
    """`indices` are rows of `weight`; so is `padding_idx`, where there is one."""
    shape, padding = given["weight"].array.shape, given["padding_idx"]
    require(len(shape) == 2, f"weight is {list(shape)}, not rows")
    require(-shape[0] <= padding < shape[0] or padding == -1, f"padding_idx {padding} of {shape[0]} rows")
    _check_indices("indices", given["indices"], shape[0])


def bag_members(given: NamedArguments) -> None:
    """`offsets` begin at 0 and rise, each within `indices`, of the same type."""
    indices, offsets, weights = given["indices"], given["offsets"], given["per_sample_weights"]
    starts = offsets.array
    require(indices.array.ndim == starts.ndim == 1, "indices and offsets must have one dim")
    require(indices.dtype is offsets.dtype, f"indices are {indices.dtype}, offsets {offsets.dtype}")
    _check_indices("offsets", offsets, indices.array.size + 1)
    require(
        starts.size and starts[0] == 0 and (np.diff(starts) >= 0).all(), "offsets must begin at 0 and rise"
    )
    last = not given["include_last_offset"] or starts[-1] == indices.array.size
    require(last, "the last offset must be the number of indices")
    require(0 <= given["mode"] <= 2, f"mode {given['mode']} is not 0, 1 or 2")
    if weights is not None:
        require(weights.array.shape == indices.array.shape, "per_sample_weights must be as many as indices")
        require(weights.dtype is given["weight"].dtype, "per_sample_weights must have the type of weight")


def _check_indices(name: str, index: HostTensor, size: int, *, from_end: bool = False) -> None:
    require(not index.dtype.is_float, f"{name} are {index.dtype}, not integers")
    if index.array.size:
        low, high = int(index.array.min()), int(index.array.max())
        within = (-size if from_end else 0) <= low and high < size
        require(within, f"{name} from {low} to {high} for a size of {size}")


# Numbers ----------------------------------------------------------------------------------------


def numbers_between(name: str, low: float, high: float | None) -> Rule:
    """The number `name`, where the operator has one, is within these."""

    def rule(given: NamedArguments) -> None:
        value = given.get(name)
        within = value is None or (low <= value and (high is None or value <= high))
        require(within, f"{name} is {value}; expected {low} to {'any' if high is None else high}")

    return rule


def both_quotients(given: NamedArguments) -> None:
    """The smallest integer is not divided by -1: that traps on x86 and ends the process."""
    dividend, divisor = _integers(given["self"]), _integers(given["other"])
    if dividend is not None and divisor is not None and (divisor == -1).any():
        least = [np.iinfo(kind).min for kind in (dividend.dtype, divisor.dtype) if kind.kind == "i"]
        require(not np.isin(dividend, least).any(), "the least integer is divided by -1")


def _integers(value: object) -> np.ndarray[Any, Any] | None:
    if isinstance(value, HostTensor):
        return None if value.dtype.is_float else value.array
    return None if isinstance(value, float) else np.asarray(value)


def scales_match(given: NamedArguments) -> None:
    """Scales, if given, agree with the sizes, apart from rounding."""
    source = given["input"] if "input" in given else given["self"]
    shape, sizes = source.array.shape[2:], given.get("output_size")
    factors = given.get("scale_factors")
    if factors is None:
        factors = [given[name] for name in ("scales", "scales_d", "scales_h", "scales_w") if name in given]
    for place, factor in enumerate(factors):
        if factor is None:
            continue
        require(isfinite(factor) and factor > 0, f"a scale of {factor}")
        require(place < len(shape), f"{len(factors)} scales for a tensor of {len(shape) + 2} dims")
        if sizes is not None and place < len(sizes):
            near = abs(factor * shape[place] - sizes[place]) <= max(1.0, factor)
            require(near, f"a scale of {factor} from {shape[place]} to {sizes[place]}")


def windows_at_least_one(given: NamedArguments) -> None:
    """Windows, their steps and their gaps are at least 1, paddings at least 0, and none beyond 31 bits."""
    for name, low in (("kernel_size", 1), ("stride", 1), ("dilation", 1), ("padding", 0), ("output_size", 1)):
        for number in given.get(name) or ():
            require(low <= number < 1 << 31, f"{name} has {number}; expected at least {low}")
    require(given.get("divisor_override") != 0, "divisor_override is 0")


# Sizes that must agree --------------------------------------------------------------------------


def group_norm_sizes(given: NamedArguments) -> None:
    """`N`, `C`, `HxW` are the input's own sizes, and `group` divides `C`."""
    shape, group = given["input"].array.shape, given["group"]
    require(len(shape) >= 2, f"input is {list(shape)}")
    stated = (given["N"], given["C"], given["HxW"])
    require(stated == (*shape[:2], prod(shape[2:])), f"sizes {stated} are not those of {list(shape)}")
    require(group >= 1 and shape[1] % group == 0, f"{group} groups of {shape[1]} channels")
    _check_per_channel(given, ("weight", "bias"), shape[1])


def statistics_per_channel(given: NamedArguments) -> None:
    """Parameters and running statistics have one element per channel; only training needs no statistics."""
    shape = given["input"].array.shape
    require(len(shape) >= 2, f"input is {list(shape)}")
    require("running_mean" in given or given["training"], "inference without running statistics")
    _check_per_channel(given, ("weight", "bias", "running_mean", "running_var"), shape[1])


def _check_per_channel(given: NamedArguments, names: Sequence[str], channels: int) -> None:
    for name in names:
        if given.get(name) is not None:
            found = given[name].array.shape
            require(found == (channels,), f"{name} is {list(found)} for {channels} channels")


def repeats_counted(given: NamedArguments) -> None:
    """`repeats` are integers of at least 0, and `output_size`, where given, is their sum."""
    repeats, stated = given["repeats"], given["output_size"]
    require(str(repeats.dtype) in ("i32", "i64"), f"repeats are {repeats.dtype}, not i32 or i64")
    require(repeats.array.ndim == 1, f"repeats are {list(repeats.array.shape)}, not of one dim")
    require(not (repeats.array < 0).any(), "repeats are negative")
    require(stated is None or stated == sum(repeats.array.tolist()), f"output_size is {stated}")
