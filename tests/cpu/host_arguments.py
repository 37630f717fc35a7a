"""The name of an operator of the host's table enters; arguments that it takes leave, in schema order.

Most operators take what their parameters' kinds and names suggest; the others' arguments are written out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.dtypes import DType
from pteron.host.operator import HostOperator, Parameter
from pteron.host.values import HostTensor, UnsetTensor


def ones(*shape: int) -> HostTensor:
    """Numbers between 1 and 2, so that no function is undefined there but those of small angles."""
    values = 1 + np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7 / 7
    return HostTensor(np.asarray(values, np.float32), DType.F32)


def integers(*values: int) -> HostTensor:
    return HostTensor(np.array(values, np.int64), DType.I64)


def whole(*shape: int) -> HostTensor:
    return HostTensor(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5 + 1, DType.I64)


def mask(*shape: int) -> HostTensor:
    return HostTensor(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3 == 0, DType.BOOL)


X = ones(2, 3, 4)
PLANES = ones(1, 4, 6, 5)
WINDOW = {"kernel_size": (2, 2), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
CUBE = {name: (*numbers, numbers[0]) for name, numbers in WINDOW.items()}
CONVOLUTION = {
    "input": PLANES, "weight": ones(2, 4, 3, 3), "bias": ones(2), "stride": (1, 1), "padding": (1, 1),
    "dilation": (1, 1), "output_padding": (0, 0), "groups": 1,
}  # fmt: skip
INDEX = HostTensor(np.array([[[0, 2, 1, 0]]]), DType.I64)
_VALUES: dict[str, dict[str, Any]] = {
    "_adaptive_avg_pool2d": {"self": PLANES, "output_size": (2, 3)},
    "_adaptive_avg_pool3d": {"self": ones(1, 2, 4, 5, 6), "output_size": (2, 3, 2)},
    "_cdist_forward": {"x1": ones(3, 4), "x2": ones(5, 4), "p": 2.0, "compute_mode": None},
    "_embedding_bag": {
        "weight": ones(5, 3),
        "indices": integers(0, 4, 2),
        "offsets": integers(0, 2),
        "mode": 0,
    },
    "_pdist_forward": {"self": ones(4, 3), "p": 2.0},
    "_upsample_bilinear2d_aa": {"self": PLANES, "output_size": (3, 4)},
    "adaptive_avg_pool1d": {"self": ones(2, 3, 8), "output_size": (3,)},
    "adaptive_max_pool2d": {"self": PLANES, "output_size": (2, 3)},
    "adaptive_max_pool3d": {"self": ones(1, 2, 4, 5, 6), "output_size": (2, 3, 2)},
    "addmm": {"self": ones(4), "mat1": ones(2, 3), "mat2": ones(3, 4)},
    "arange": {"start": 1, "end": 7, "step": 2},
    "as_strided_copy": {"size": (2, 2), "stride": (3, 1), "storage_offset": 1},
    "avg_pool1d": {"self": ones(2, 3, 8), "kernel_size": (2,), "stride": (1,), "padding": (0,)},
    "avg_pool2d": {"self": PLANES, **WINDOW},
    "avg_pool3d": {"self": ones(1, 2, 4, 5, 6), **CUBE},
    "baddbmm": {"self": ones(2, 3, 5), "batch1": ones(2, 3, 4), "batch2": ones(2, 4, 5)},
    "bmm": {"self": ones(2, 3, 4), "mat2": ones(2, 4, 5)},
    "col2im": {"self": ones(1, 8, 12), "output_size": (4, 5), **WINDOW},
    "constant_pad_nd": {"pad": (1, 2)},
    "convolution": {**CONVOLUTION, "transposed": False},
    "diagonal_copy": {"offset": 0, "dim1": 0, "dim2": 1},
    "embedding": {"weight": ones(5, 3), "indices": integers(0, 4, 2)},
    "expand_copy": {"self": ones(2, 1, 4), "size": (5, 2, 3, -1)},
    "eye": {"n": 3, "m": 4},
    "flip": {"dims": (0, 2)},
    "gather": {"index": INDEX},
    "glu": {"self": ones(2, 4)},
    "grid_sampler_2d": {
        "input": PLANES,
        "grid": ones(1, 3, 3, 2),
        "interpolation_mode": 0,
        "padding_mode": 0,
    },
    "im2col": {"self": PLANES, **WINDOW},
    "index": {"indices": (None, integers(0, -1))},
    "index_put": {"indices": (integers(0, 1), integers(2, 0)), "values": ones(2, 4)},
    "index_select": {"index": integers(2, 0)},
    "index_copy": {"index": integers(2, 0), "source": ones(2, 2, 4)},
    "index_add": {"index": integers(2, 0), "source": ones(2, 2, 4)},
    "linear": {"input": ones(2, 3), "weight": ones(4, 3), "bias": ones(4)},
    "linspace": {"start": 0.0, "end": 1.0, "steps": 5},
    "bucketize": {"boundaries": ones(5)},
    "clamp": {"min": 1, "max": 2},
    "masked_scatter": {"mask": mask(2, 3, 4), "source": ones(24)},
    "max_pool2d_with_indices": {"self": PLANES, **WINDOW},
    "max_pool3d_with_indices": {"self": ones(1, 2, 4, 5, 6), **CUBE},
    "mm": {"self": ones(2, 3), "mat2": ones(3, 4)},
    "narrow_copy": {"start": 1, "length": 2},
    "native_group_norm": {
        "input": PLANES,
        "weight": ones(4),
        "bias": ones(4),
        "N": 1,
        "C": 4,
        "HxW": 30,
        "group": 2,
    },
    "native_layer_norm": {"normalized_shape": (4,), "weight": ones(4), "bias": ones(4)},
    "permute_copy": {"dims": (2, 0, 1)},
    "pixel_shuffle": {"self": PLANES, "upscale_factor": 2},
    "pixel_unshuffle": {"self": ones(1, 1, 4, 6), "downscale_factor": 2},
    "randperm": {"n": 5},
    "reflection_pad1d": {"padding": (1, 2)},
    "reflection_pad2d": {"padding": (1, 2, 1, 2)},
    "reflection_pad3d": {"self": ones(1, 2, 4, 5, 6), "padding": (1, 2, 1, 2, 1, 2)},
    "replication_pad1d": {"padding": (1, 2)},
    "replication_pad2d": {"padding": (1, 2, 1, 2)},
    "replication_pad3d": {"self": ones(1, 2, 4, 5, 6), "padding": (1, 2, 1, 2, 1, 2)},
    "repeat": {"repeats": (2, 1, 3)},
    "repeat_interleave": {"repeats": integers(2, 0, 3)},
    "roll": {"shifts": (1,), "dims": (2,)},
    "scatter": {"index": INDEX, "src": X},
    "scatter_add": {"index": INDEX, "src": X},
    "scatter_reduce": {"index": INDEX, "src": X, "reduce": "amax"},
    "select_copy": {"index": 1},
    "select_scatter": {"src": ones(2, 4), "index": 1},
    "slice_copy": {"start": 0, "end": 2, "step": 1},
    "slice_scatter": {"src": ones(2, 2, 4), "start": 0, "end": 2, "step": 1},
    "split_with_sizes_copy": {"split_sizes": (1, 2), "out": (UnsetTensor(DType.F32), UnsetTensor(DType.F32))},
    "squeeze_copy": {"self": ones(2, 1, 4)},
    "t_copy": {"self": ones(2, 3)},
    "unbind_copy": {"out": (UnsetTensor(DType.F32),) * 3},
    "unfold_copy": {"dimension": 2, "size": 2, "step": 1},
    "upsample_bicubic2d": {"self": PLANES, "output_size": (7, 8)},
    "upsample_bilinear2d": {"self": PLANES, "input": PLANES, "output_size": (7, 8)},
    "upsample_linear1d": {"output_size": (9,)},
    "upsample_nearest1d": {"output_size": (9,)},
    "upsample_nearest2d": {"self": PLANES, "input": PLANES, "output_size": (7, 8)},
    "upsample_nearest3d": {"self": ones(1, 2, 4, 5, 6), "output_size": (5, 6, 7)},
    "upsample_trilinear3d": {"self": ones(1, 2, 4, 5, 6), "output_size": (5, 6, 7)},
    "view_copy": {"size": (6, -1)},
}
for _name in ("_native_batch_norm_legit", "_native_batch_norm_legit_no_training"):
    _VALUES[_name] = {
        "input": PLANES,
        **dict.fromkeys(("weight", "bias", "running_mean", "running_var"), ones(4)),
    }
_VALUES["_embedding_bag_forward_only"] = _VALUES["_embedding_bag"]

_NAMED = {
    "condition": mask(2, 3, 4), "mask": mask(2, 3, 4), "tensors": (X, X), "size": (2, 3), "dim": 1, "dim0": 0,
    "dim1": 1, "padding_idx": -1, "k": 2, "approximate": "tanh", "rounding_mode": "floor", "dtype": 6,
    "momentum": 0.1, "eps": 1e-5, "p": 0.5, "output_size": None, "scale_factors": None,
    "half_to_float": False, "weight": 0.5, "alpha": 1, "beta": 1, "value": ones(), "decimals": 1,
    "memory_format": 0, "include_last_offset": False, "sparse": False, "scale_grad_by_freq": False,
    "training": True,
}  # fmt: skip
_KINDS: dict[str, Any] = {
    "Tensor": X, "int": 1, "bool": False, "float": 0.5, "number": 2, "List[int]": (1,),
    "List[Tensor]": (X, X),
}  # fmt: skip


def good_arguments(name: str, operator: HostOperator) -> list[Any]:
    """Arguments of an operator by its full name."""
    base = name.removeprefix("aten::").split(".")[0]
    written_out = _VALUES.get(base, _VALUES.get(base.removesuffix("_"), {}))
    if name == "aten::clamp.Tensor_out":
        written_out = {"min": X, "max": X}
    arguments = [_argument(parameter, written_out) for parameter in operator.parameters]
    if base.startswith("bitwise"):
        return [whole(2, 3, 4) if value is X else value for value in arguments]
    return arguments


def output_dtype(name: str, parameter: Parameter) -> DType:
    """The element type of what an operator writes, where its inputs are as above."""
    base = name.removeprefix("aten::").split(".")[0]
    is_index = parameter.name in ("indices", "max_values", "min_indices") or base in _GIVE_INDICES
    if is_index or (base.startswith("_embedding_bag") and parameter.name != "out0"):
        return DType.I64
    if base in _GIVE_BOOLEANS or (base == "native_dropout" and parameter.name == "out1"):
        return DType.BOOL
    return DType.I64 if base.startswith("bitwise") else DType.F32


_GIVE_BOOLEANS = {"all", "any", "isinf", "isnan", "signbit"}
_GIVE_INDICES = {"argmax", "argmin", "bucketize", "nonzero", "randperm", "repeat_interleave"}


def _argument(parameter: Parameter, written_out: dict[str, Any]) -> Any:
    if parameter.name in written_out:
        return written_out[parameter.name]
    if parameter.is_written and not parameter.is_read:
        return UnsetTensor(DType.F32)
    if parameter.name in _NAMED and _is_kind(_NAMED[parameter.name], parameter.kind):
        return _NAMED[parameter.name]
    if parameter.kind.startswith("Optional["):
        return None
    return _KINDS[parameter.kind]


def _is_kind(value: object, kind: str) -> bool:
    if "Tensor" in kind:
        return isinstance(value, (HostTensor, tuple)) if "List" in kind else isinstance(value, HostTensor)
    if value is None:
        return kind.startswith("Optional[")
    return isinstance(value, tuple) if "List" in kind else not isinstance(value, (tuple, HostTensor))
