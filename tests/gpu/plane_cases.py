"""Names and arguments of convolutions, pools, resampling, norms and embeddings."""

from __future__ import annotations

from typing import Any

import torch
from arguments import TensorArgument, weight

RMS = "et_vk.rms_norm.default"
LAYER = "aten.native_layer_norm.default"
GROUP = "aten.native_group_norm.default"
BATCH = "aten._native_batch_norm_legit_no_training.default"
AVERAGE = "aten.avg_pool2d.default"
LARGEST = "aten.max_pool2d.default"
INDICES = "aten.max_pool2d_with_indices.default"
CONVOLUTION = "aten.convolution.default"
CLAMPED = "et_vk.conv_with_clamp.default"


def numbers(
    dims: int = 2, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, extra: Any = None, groups: int = 1
) -> list[Any]:
    """The arguments of a convolution after its tensors; a single number applies to every dim."""

    def along(number: Any) -> list[int]:
        return list(number) if isinstance(number, tuple) else [number] * dims

    transposed = extra is not None
    return [along(stride), along(padding), along(dilation), transposed, along(extra or 0), groups]


def small(*shape: int) -> TensorArgument:
    return weight(*shape, low=-1, high=1)


NEAREST = "aten.upsample_nearest2d.vec"
BILINEAR = "aten.upsample_bilinear2d.vec"
SHUFFLE = "aten.pixel_shuffle.default"
SAMPLER = "aten.grid_sampler_2d.default"
PRIORS = "et_vk.grid_priors.default"


def embedding(table: Any, indices: Any, *_: Any) -> Any:
    """Rows by index; PyTorch raises where one is out of range, a GPU answers NaN."""
    inside = (indices >= 0) & (indices < table.shape[0])
    rows = table[torch.where(inside, indices, 0)]
    return torch.where(inside[..., None], rows, torch.nan)
