"""The operators of PyTorch that a program may call outside its delegates; any other is refused.

They are ExecuTorch's portable kernels, Core ATen in out variants, operators that decompose into neither, and
updates of buffers in place. They read and write only their arguments; random numbers come from PyTorch's
generator. None takes complex numbers, files or functions.

Before an operator runs, its arguments must be of its schema's kinds and satisfy the rules of its family
(torch_rules.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from pteron.host import torch_rules as rules
from pteron.host.torch_rules import Rule


@dataclass(frozen=True, slots=True)
class Family:
    """Operators with the same rules."""

    operators: str
    rules: tuple[Rule, ...] = ()
    is_dense: bool = False  # whether the operator addresses memory by strides, so tensors must be contiguous


FAMILIES = (
    # Element by element, of one tensor
    Family(
        "abs.out acos.out acosh.out asin.out asinh.out atan.out atanh.out bitwise_not.out ceil.out "
        "celu.out cos.out cosh.out digamma.out elu.out erf.out erfc.out erfinv.out exp.out exp2.out glu.out "
        "expm1.out floor.out frac.out gelu.out hardshrink.out hardsigmoid.out hardswish.out hardtanh.out "
        "isinf.out isnan.out leaky_relu.out lgamma.out log.out log10.out log1p.out log2.out "
        "log_sigmoid_forward.output logical_not.out logit.out mish.out nan_to_num.out neg.out "
        "reciprocal.out relu.out round.out rsqrt.out sgn.out sigmoid.out sign.out signbit.out silu.out "
        "sin.out sinc.out sinh.out softplus.out softshrink.out sqrt.out square.out tan.out tanh.out "
        "threshold.out trunc.out"
    ),
    Family("round.decimals_out", (rules.numbers_between("decimals", -400, 400),)),
    # Element by element, of several that are broadcast
    Family(
        "add.out add.Scalar_out addcdiv.out addcmul.out atan2.out bitwise_and.Scalar_out "
        "bitwise_and.Tensor_out bitwise_left_shift.Tensor_out bitwise_left_shift.Tensor_Scalar_out "
        "bitwise_or.Scalar_out bitwise_or.Tensor_out bitwise_right_shift.Tensor_out "
        "bitwise_right_shift.Tensor_Scalar_out bitwise_xor.Scalar_out bitwise_xor.Tensor_out clamp.out "
        "clamp.Tensor_out clamp_max.out clamp_min.out copysign.out eq.Scalar_out eq.Tensor_out fmax.out "
        "fmin.out ge.Scalar_out ge.Tensor_out gt.Scalar_out gt.Tensor_out hypot.out le.Scalar_out "
        "le.Tensor_out lerp.Scalar_out lerp.Tensor_out logaddexp.out logaddexp2.out logical_and.out "
        "logical_or.out logical_xor.out lt.Scalar_out lt.Tensor_out masked_fill.Scalar_out "
        "masked_fill.Tensor_out maximum.out minimum.out mul.out mul.Scalar_out ne.Scalar_out "
        "ne.Tensor_out pow.Scalar_out pow.Tensor_Scalar_out pow.Tensor_Tensor_out rsub.Scalar_out sub.out "
        "sub.Scalar_out where.self_out xlogy.OutTensor"
    ),
    Family(
        "div.out div.out_mode div.Scalar_out div.Scalar_mode_out floor_divide.out fmod.Scalar_out "
        "fmod.Tensor_out remainder.Scalar_out remainder.Tensor_out",
        (rules.both_quotients,),
    ),
    # Along dims
    Family(
        "_log_softmax.out _softmax.out all.all_out all.dims_out all.out amax.out amin.out any.all_out "
        "any.dims_out any.out argmax.out argmin.out cummax.out cummin.out cumprod.out cumsum.out "
        "logcumsumexp.out logsumexp.out "
        "max.dim_max max.unary_out mean.dtype_out mean.out min.dim_min min.unary_out prod.int_out "
        "prod.out std.correction_out sum.IntList_out var.correction_out var.out var_mean.correction_out"
    ),
    Family("median.dim_values median.out sort.values sort.values_stable topk.values"),
    # Elements moved
    Family(
        "_to_copy.out alias_copy.out cat.out clone.out constant_pad_nd.out copy.out detach_copy.out "
        "diagonal_copy.out expand_copy.out flip.out lift_fresh_copy.out narrow_copy.out permute_copy.out "
        "pixel_shuffle.out pixel_unshuffle.out reflection_pad1d.out reflection_pad2d.out "
        "reflection_pad3d.out repeat.out replication_pad1d.out replication_pad2d.out "
        "replication_pad3d.out roll.out select_copy.int_out select_scatter.out slice_copy.Tensor_out "
        "slice_scatter.out split_with_sizes_copy.out squeeze_copy.dim_out squeeze_copy.dims_out stack.out "
        "t_copy.out transpose_copy.int_out tril.out triu.out unbind_copy.int_out unfold_copy.out "
        "unsqueeze_copy.out view_copy.out"
    ),
    Family("as_strided_copy.out", is_dense=True),
    # Tensors made of numbers
    Family(
        "arange.out arange.start_out eye.m_out eye.out fill.Scalar_out fill.Tensor_out full.out "
        "full_like.out linspace.out ones.out scalar_tensor.out zeros.out"
    ),
    Family("native_dropout.out rand.out randn.out randperm.out", (rules.numbers_between("p", 0, 1),)),
    # By index
    Family(
        "gather.out index_add_ index_copy_ index_select.out scatter.src_out scatter.value_out scatter_.src "
        "scatter_.value scatter_add.out scatter_add_ scatter_reduce.two_out",
        (rules.indices_along_dim,),
    ),
    Family("index.Tensor_out index_put.out index_put_", (rules.indices_in_lists,)),
    Family("embedding.out", (rules.weight_rows,)),
    Family(
        "_embedding_bag.out _embedding_bag_forward_only.out",
        (rules.weight_rows, rules.bag_members),
    ),
    Family("masked_select.out"),
    Family("nonzero.out"),
    Family("bucketize.Tensor_out masked_scatter.out"),
    Family("repeat_interleave.Tensor_out", (rules.repeats_counted,)),
    # Products
    Family("addmm.out baddbmm.out bmm.out linear.out mm.out"),
    Family(
        "_cdist_forward.out _pdist_forward.out",
        (rules.numbers_between("p", 0, None),),
    ),
    Family("convolution.out"),
    # Windows and planes
    Family(
        "avg_pool1d.out avg_pool2d.out avg_pool3d.out col2im.out im2col.out max_pool2d_with_indices.out "
        "max_pool3d_with_indices.out",
        (rules.windows_at_least_one,),
    ),
    Family(
        "_adaptive_avg_pool2d.out _adaptive_avg_pool3d.out adaptive_avg_pool1d.out "
        "adaptive_max_pool2d.out adaptive_max_pool3d.out"
    ),
    Family(
        "grid_sampler_2d.out",
        (rules.numbers_between("interpolation_mode", 0, 2), rules.numbers_between("padding_mode", 0, 2)),
    ),
    Family(
        "_upsample_bilinear2d_aa.out upsample_bicubic2d.out upsample_bilinear2d.out "
        "upsample_bilinear2d.vec_out upsample_linear1d.out upsample_nearest1d.out upsample_nearest2d.out "
        "upsample_nearest2d.vec_out upsample_nearest3d.out upsample_trilinear3d.out",
        (rules.scales_match,),
    ),
    # Norms
    Family(
        "_native_batch_norm_legit.out _native_batch_norm_legit.no_stats_out "
        "_native_batch_norm_legit_no_training.out",
        (rules.statistics_per_channel,),
    ),
    Family("native_group_norm.out", (rules.group_norm_sizes,)),
    Family("native_layer_norm.out"),
    # Buffers that are updated in place
    Family(
        "add_.Scalar add_.Tensor copy_ fill_.Scalar fill_.Tensor masked_fill_.Scalar mul_.Scalar "
        "mul_.Tensor relu_ sub_.Scalar sub_.Tensor zero_"
    ),
)

TABLE: dict[str, Family] = {
    f"aten::{operator}": family for family in FAMILIES for operator in family.operators.split()
}
