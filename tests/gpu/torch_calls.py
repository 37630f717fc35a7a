"""Calls of PyTorch that models make, at odd sizes: a name, the call, its inputs."""

# mypy: disable-error-code="misc, attr-defined, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

Calls = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]


def _floats(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_RANDOM)


def _integers(*shape: int, low: int = -9, high: int = 9, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.randint(low, high, shape, generator=_RANDOM).to(dtype)


def _bools(*shape: int) -> Tensor:
    return torch.rand(shape, generator=_RANDOM) > 0.5


_RANDOM = torch.Generator().manual_seed(0)
X, Y = _floats(3, 5, 7), _floats(3, 5, 7)
HIGH = _floats(1, 2, 3, 2, 1, 2, 2, 3)  # of rank 8
WHOLE, OTHERS = _integers(3, 5, 7), _integers(3, 5, 7, low=1)
SMALL = _integers(3, 5, 7, low=0, high=5, dtype=torch.int32)
B, C = _bools(3, 5, 7), _bools(3, 5, 7)
BYTES = _integers(3, 5, 7, low=0, high=200, dtype=torch.uint8)
CHARS = _integers(3, 5, 7, dtype=torch.int8)
POSITIVE = X.abs() + 0.1
SIGNAL, IMAGE, VOLUME = _floats(2, 3, 11), _floats(2, 3, 7, 11), _floats(2, 3, 5, 7, 6)


def _table(**calls: tuple[Any, ...]) -> Calls:
    return {name: (call[0], call[1:]) for name, call in calls.items()}


def _copy_broadcast(x: Tensor, y: Tensor) -> Tensor:
    out = x.clone()
    out[:, 1:3] = y
    out.copy_(y.expand_as(out) + 1)
    return out


def _assigned(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    out[:, 1:3, ::2] = 3.0
    out[..., -1] = x[..., 0]
    return out


ARITHMETIC = _table(
    copy=(torch.ops.aten.copy.default, X, _floats(5, 1)),
    copy_integers=(torch.ops.aten.copy.default, X, _integers(7)),
    copy_broadcast=(_copy_broadcast, X, _floats(7)),
    assigned=(_assigned, X),
    scalar_tensor=(lambda x: x * torch.scalar_tensor(2.5), X),
    where=(torch.where, B, X, Y),
    where_scalar=(lambda c, x: torch.where(c, x, 0.0), B, X),
    where_scalars=(lambda c: torch.where(c, 1.0, -2.5), B),
    where_other=(lambda c, x: torch.where(c, -1, x), B, WHOLE),
    where_mixed=(lambda c, x, y: torch.where(c, x, y), B, WHOLE, X),
    where_bool=(torch.where, B, B, C),
    bitwise_and=(torch.bitwise_and, WHOLE, OTHERS),
    bitwise_or=(torch.bitwise_or, WHOLE, OTHERS),
    bitwise_xor=(torch.bitwise_xor, WHOLE, OTHERS),
    bitwise_not=(torch.bitwise_not, WHOLE),
    bitwise_and_scalar=(lambda i: i & 5, WHOLE),
    bitwise_or_scalar=(lambda i: i | 5, WHOLE),
    bitwise_xor_scalar=(lambda i: i ^ 5, WHOLE),
    bitwise_bool=(lambda b, c: (b & c) | (b ^ ~c), B, C),
    bitwise_bytes=(lambda b: ~b & 15, BYTES),
    shift_left=(lambda i: i << 2, WHOLE),
    shift_right=(lambda i: i >> 1, WHOLE),
    shifts=(lambda i, j: (i << j) + (i >> j), WHOLE, SMALL),
    invert_bool=(lambda b: ~b, B),
    divide_integers=(lambda i, j: i / j, WHOLE, OTHERS),
    divide_integer=(lambda i: i / 3, WHOLE),
    floor_divide=(lambda i, j: i // j, WHOLE, OTHERS),
    floor_divide_scalar=(lambda i: i // 3, WHOLE),
    floor_divide_negative=(lambda i: i // -3, WHOLE),
    floor_divide_floats=(lambda x: x // 0.3, X),
    div_trunc=(lambda i, j: torch.div(i, j, rounding_mode="trunc"), WHOLE, OTHERS),
    div_trunc_scalar=(lambda i: torch.div(i, 3, rounding_mode="trunc"), WHOLE),
    div_floor_scalar=(lambda x: torch.div(x, 0.7, rounding_mode="floor"), X),
    rdiv=(lambda i: 7 / (i * i + 1), WHOLE),
    rsub=(lambda x: 1 - x, X),
    rsub_integers=(lambda i: 1 - i, WHOLE),
    rsub_alpha=(lambda x, y: torch.rsub(x, y, alpha=2), X, Y),
    add_alpha=(lambda i, j: torch.add(i, j, alpha=3), WHOLE, OTHERS),
    add_bool=(lambda b, i: b + i, B, WHOLE),
    add_bools=(lambda b, c: b + c, B, C),
    mul_bool=(lambda b, x: b * x, B, X),
    mul_bools=(lambda b, c: b * c, B, C),
    add_mixed=(lambda i, x: i + x, WHOLE, X),
    add_bytes=(lambda b, c: b + c, BYTES, BYTES),
    mul_chars=(lambda b, c: b * c, CHARS, CHARS),
    modulo=(lambda i: i % 4, WHOLE),
    modulo_tensor=(lambda i, j: i % j, WHOLE, OTHERS),
    modulo_floats=(lambda x: x % 0.75, X),
    fmod=(lambda x: torch.fmod(x, 0.75), X),
    fmod_integers=(lambda i, j: torch.fmod(i, j), WHOLE, OTHERS),
    pow_integers=(lambda i: i**3, WHOLE),
    pow_tensors=(lambda i, j: i**j, CHARS.long(), SMALL.long()),
    pow_scalar=(lambda i: 2**i, SMALL),
    pow_float=(lambda i: i**0.5, SMALL),
    pow_scalar_float=(lambda i: 2.5**i, SMALL),
    abs=(torch.abs, WHOLE),
    neg=(torch.neg, WHOLE),
    sign=(torch.sign, WHOLE),
    sgn=(torch.sgn, X),
    signbit=(torch.signbit, X),
    square=(torch.square, WHOLE),
    sqrt_integers=(lambda i: torch.sqrt(i), SMALL),
    clamp_integers=(lambda i: i.clamp(-3, 4), WHOLE),
    clamp_min=(lambda i: i.clamp_min(0), WHOLE),
    clamp_max=(lambda x: x.clamp_max(0.5), X),
    clamp_tensors=(lambda x, y: x.clamp(min=y), X, Y),
    clamp_bytes=(lambda b: b.clamp(3, 100), BYTES),
    minimum=(torch.minimum, WHOLE, OTHERS),
    maximum=(torch.maximum, WHOLE, OTHERS),
    maximum_bools=(torch.maximum, B, C),
    fmax=(torch.fmax, X, Y),
    fmin=(torch.fmin, X, Y),
    eq=(lambda i, j: i == j, WHOLE, OTHERS),
    eq_bools=(lambda b, c: b == c, B, C),
    ne_scalar=(lambda i: i != 2, WHOLE),
    lt_mixed=(lambda i, x: i < x, WHOLE, X),
    ge_float=(lambda i: i >= 2.5, WHOLE),
    gt_bool=(lambda b: b > 0, B),
    eq_true=(lambda b: b == True, B),  # noqa: E712
    isclose=(lambda x, y: torch.isclose(x, y, atol=0.5), X, Y),
    logical_and=(torch.logical_and, WHOLE, X),
    logical_or=(torch.logical_or, B, WHOLE),
    logical_xor=(torch.logical_xor, B, C),
    logical_not=(torch.logical_not, X),
    isfinite=(torch.isfinite, X),
    nan_to_num=(torch.nan_to_num, X),
    lerp=(lambda x, y: torch.lerp(x, y, 0.3), X, Y),
    lerp_tensor=(torch.lerp, X, Y, POSITIVE),
    addcmul=(lambda x, y, z: torch.addcmul(x, y, z, value=0.5), X, Y, X),
    addcdiv=(lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), X, Y, POSITIVE),
    hypot=(torch.hypot, X, Y),
    atan2=(torch.atan2, X, Y),
    copysign=(torch.copysign, X, Y),
    xlogy=(torch.xlogy, POSITIVE, POSITIVE),
    logaddexp=(torch.logaddexp, X, Y),
    logit=(lambda x: torch.logit(torch.sigmoid(x)), X),
    erf=(torch.erf, X),
    erfc=(torch.erfc, X),
    erfinv=(lambda x: torch.erfinv(torch.tanh(x)), X),
    exp2=(torch.exp2, X),
    expm1=(torch.expm1, X),
    frac=(torch.frac, X),
    sinc=(torch.sinc, X),
    lgamma=(torch.lgamma, POSITIVE),
    digamma=(torch.digamma, POSITIVE),
    deg2rad=(torch.deg2rad, X),
    heaviside=(torch.heaviside, X, Y),
    gcd=(torch.gcd, WHOLE, OTHERS),
    round_decimals=(lambda x: torch.round(x, decimals=1), X),
    rank_8=(lambda x: (x + x[:, :1] * x[..., :1]).sin(), HIGH),
    rank_8_broadcast=(lambda x, y: x * y - y, HIGH, _floats(2, 1, 2, 1, 2, 1, 3)),
    to_int=(lambda x: x.int() + 1, X),
    to_bool=(lambda x: x.bool(), X),
    to_half=(lambda x: x.half() + 1, X),
    to_double=(lambda x: (x.double() + 1).float(), X),
    double_tables=(lambda x: (x * torch.linspace(0, 1, 7, dtype=torch.float64)).float(), X),
    to_bytes=(lambda x: x.to(torch.uint8), POSITIVE),
)

CREATION = _table(
    fill=(lambda x: torch.fill(x, 2.0), X),
    fill_tensor=(lambda x, y: torch.fill(x, y), X, torch.tensor(3.0)),
    full_like=(lambda x: torch.full_like(x, 2.0) + x, X),
    ones_like_bool=(lambda x: torch.ones_like(x, dtype=torch.bool) & (x > 0), X),
    zeros=(lambda x: torch.zeros(3, 1, 7) + x, X),
    new_zeros=(lambda x: x.new_zeros(5, 7) + x, X),
    new_ones=(lambda x: x.new_ones(5, 1) + x, X),
    new_full=(lambda x: x.new_full((1, 7), 2.5) + x, X),
    new_tensor=(lambda x: x + x.new_tensor([1.0]), X),
    empty=(lambda x: torch.empty(3, 5, 7).copy_(x), X),
    empty_like=(lambda x: torch.empty_like(x).fill_(2) + x, X),
    new_empty=(lambda x: x.new_empty(5, 7).zero_() + x, X),
    empty_strided=(lambda x: torch.empty_strided((5, 7), (7, 1)).fill_(1) + x, X),
    arange=(lambda x: torch.arange(7) + x, X),
    linspace=(lambda x: torch.linspace(0, 1, 7) + x, X),
    eye=(lambda x: torch.eye(5, 7) + x, X),
    tril=(lambda x: x.tril(1), X),
    triu=(lambda x: x.triu(-1), X),
    tril_bool=(lambda b: b.tril(), B),
    diag_embed=(lambda x: torch.diag_embed(x, 1), X),
    diag=(lambda x: torch.diag(x[0, 0]), X),
    diagonal=(lambda x: x.diagonal(1, 1, 2) * 1, X),
    diagonal_scatter=(lambda x, y: x.diagonal_scatter(y, 0, 1, 2), X, _floats(3, 5)),
    one_hot=(lambda i: F.one_hot(i, 9), SMALL.long()),
    meshgrid=(lambda x, y: torch.meshgrid(x, y, indexing="ij"), _floats(5), _floats(7)),
    masked_fill=(lambda x, b: x.masked_fill(b, -1e9), X, B),
    masked_fill_tensor=(lambda x, b, v: x.masked_fill(b, v), X, B, torch.tensor(2.0)),
    masked_fill_broadcast=(lambda x, b: x.masked_fill(b, float("-inf")), X, _bools(5, 1)),
    masked_fill_integers=(lambda i, b: i.masked_fill(b, 0), WHOLE, B),
    masked_fill_bools=(lambda c, b: c.masked_fill(b, True), C, B),
    masked_fill_assigned=(lambda x, b: x.clone().masked_fill_(b, 1.0), X, B),
    masked_assignment=(lambda x, b: torch.index_put(x, (b,), torch.tensor(0.0)), X, B),
    masked_scatter=(torch.masked_scatter, X, B, _floats(200)),
    masked_scatter_broadcast=(torch.masked_scatter, X, _bools(3, 5, 1), _floats(200)),
    tri=(lambda x: torch.ones(5, 7).tril().bool() & (x > 0), X),
    uniform_mask=(lambda x: torch.full((5, 5), float("-inf")).triu(1) + x[..., :5], X),
)

REDUCTION = _table(
    amax_integers=(lambda i: i.amax(1), WHOLE),
    amin_integers=(lambda i: i.amin((0, 2)), WHOLE),
    amax_bools=(lambda b: b.amax(1), B),
    max_all=(lambda x: x.max(), X),
    min_all=(lambda x: x.min(), X),
    max_integers=(lambda i: i.max(), WHOLE),
    max_bools=(lambda b: b.max(), B),
    max_dim=(lambda x: x.max(1), X),
    min_dim_integers=(lambda i: i.min(-1, keepdim=True), WHOLE),
    max_dim_bools=(lambda b: b.max(-1), B),
    aminmax=(lambda x: torch.aminmax(x, dim=1), X),
    argmax=(lambda x: x.argmax(), X),
    argmin=(lambda x: x.argmin(), X),
    argmax_dim=(lambda i: i.argmax(1), WHOLE),
    argmax_keep=(lambda i: i.argmax(-1, keepdim=True), WHOLE),
    sum_integers=(lambda i: i.sum(1), WHOLE),
    sum_bools=(lambda b: b.sum(), B),
    sum_bool_dims=(lambda b: b.sum((0, 2)), B),
    sum_bytes=(lambda b: b.sum(-1), BYTES),
    sum_typed=(lambda b: b.sum(-1, dtype=torch.float32), B),
    mean_bools=(lambda b: b.float().mean(), B),
    prod_integers=(lambda i: i.prod(1), SMALL.long()),
    nansum=(lambda x: x.nansum(1), X),
    nanmean=(lambda x: x.nanmean(1), X),
    any=(lambda b: b.any(), B),
    any_dim=(lambda i: i.any(1), WHOLE),
    any_dims=(lambda x: torch.any(x, (0, 2)), X),
    all=(lambda b: b.all(), B),
    all_dim=(lambda x: x.all(1), X),
    all_keep=(lambda b: b.all(-1, keepdim=True), B),
    all_dims=(lambda i: torch.all(i, (0, 1)), WHOLE),
    count_nonzero=(lambda i: torch.count_nonzero(i, 1), WHOLE),
    var=(lambda x: x.var(1), X),
    var_all=(lambda x: x.var(), X),
    var_correction=(lambda x: x.var((0, 2), correction=0), X),
    var_correction_2=(lambda x: x.var(1, correction=2), X),
    var_mean=(lambda x: torch.var_mean(x, (1, 2), correction=0), X),
    std=(lambda x: x.std(1), X),
    std_all=(lambda x: x.std(unbiased=False), X),
    std_mean=(lambda x: torch.std_mean(x, 1, keepdim=True), X),
    logsumexp=(lambda x: x.logsumexp((1, 2)), X),
    logsumexp_keep=(lambda x: x.logsumexp(-1, keepdim=True), X),
    norm=(lambda x: x.norm(), X),
    norm_1=(lambda x: x.norm(1, dim=1), X),
    norm_inf=(lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1), X),
    norm_neg_inf=(lambda x: torch.linalg.vector_norm(x, -float("inf"), dim=1), X),
    norm_0=(lambda x: torch.linalg.vector_norm(x, 0, dim=(1, 2)), X),
    norm_3=(lambda x: torch.linalg.vector_norm(x, 3, dim=(0, 2), keepdim=True), X),
    matrix_norm=(lambda x: torch.linalg.matrix_norm(x), X),
    normalize=(lambda x: F.normalize(x, dim=1), X),
    cosine=(lambda x, y: F.cosine_similarity(x, y, dim=1), X, Y),
    pairwise=(F.pairwise_distance, X, Y),
    cumsum_bools=(lambda b: b.cumsum(1), B),
    cumsum_integers=(lambda i: i.cumsum(-1), WHOLE),
    cumprod=(lambda x: x.cumprod(1), X),
    cummax=(lambda x: x.cummax(1), X),
    cummin=(lambda x: x.cummin(-1), X),
    cummax_integers=(lambda i: i.cummax(1), WHOLE),
    logcumsumexp=(lambda x: x.logcumsumexp(1), X),
    diff=(lambda x: x.diff(dim=1), X),
    softmax_8=(lambda x: x.softmax(2), HIGH),
    softmax_integers=(lambda i: i.float().softmax(1), WHOLE),
    log_softmax=(lambda x: x.log_softmax(1), X),
    softmin=(lambda x: F.softmin(x, 1), X),
    reduced_8=(lambda x: (x.sum((1, 3, 6)), x.amax((2, 5)), x.mean((0, 2, 4, 6))), HIGH),
    cat_8=(lambda x: torch.cat([x, x], 5), HIGH),
    trace=(lambda x: torch.trace(x[0]), X),
    renorm=(lambda x: torch.renorm(x, 2, 0, 1.0), X),
)

ORDER = _table(
    sort=(lambda x: x.sort(1), X),
    sort_stable=(lambda i: torch.sort(i, dim=1, stable=True), WHOLE),
    sort_descending=(lambda x: x.sort(-1, descending=True), X),
    sort_bools=(lambda b: torch.sort(b.int(), dim=-1, stable=True), B),
    argsort=(lambda x: x.argsort(1), X),
    argsort_stable=(lambda i: i.argsort(dim=1, stable=True, descending=True), WHOLE),
    msort=(lambda x: torch.msort(x), X),
    topk=(lambda x: x.topk(3), X),
    topk_dim=(lambda x: x.topk(2, dim=1, largest=False), X),
    kthvalue=(lambda x: x.kthvalue(2, dim=1), X),
    median=(lambda x: x.median(), X),
    median_dim=(lambda x: x.median(1), X),
    quantile=(lambda x: x.quantile(0.3, dim=1), X),
    isin=(lambda i: torch.isin(i, torch.tensor([1, 3, -2])), WHOLE),
    isin_tensor=(torch.isin, WHOLE, _integers(40)),
    searchsorted=(torch.searchsorted, _floats(3, 5, 11).sort(-1).values, X),
    searchsorted_right=(
        lambda s, x: torch.searchsorted(s, x, right=True),
        _floats(11).sort().values,
        X,
    ),
    bucketize=(lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])), X),
    bucketize_right=(lambda i: torch.bucketize(i, torch.tensor([-1, 0, 5]), right=True), WHOLE),
    histc=(lambda i: torch.histc(i.float(), bins=6, min=0, max=5), SMALL),
    bincount=(lambda i: torch.bincount(i, minlength=9), _integers(11, low=0, high=9)),
    roll=(lambda x: x.roll(2, 1), X),
    roll_dims=(lambda x: x.roll((1, -2), (1, 2)), X),
    roll_all=(lambda x: x.roll(3), X),
    flip=(lambda x: x.flip(1), X),
    flip_bool=(lambda b: b.flip((0, 2)), B),
    fliplr=(lambda x: torch.fliplr(x), X),
    rot90=(lambda x: torch.rot90(x, 1, (1, 2)), X),
    repeat_interleave=(lambda x: x.repeat_interleave(3, 1), X),
    repeat_interleave_flat=(lambda x: x.repeat_interleave(2), X),
    repeat=(lambda x: x.repeat(2, 1, 1, 3), X),
    tile=(lambda x: x.tile((2, 3)), X),
    unfold=(lambda x: x.unfold(1, 3, 2) * 1, X),
    as_strided=(lambda x: x.as_strided((4, 3), (5, 2), 1) * 1, X),
    take=(lambda x: x.take(torch.tensor([0, 8, 104])), X),
    take_along_dim=(lambda x, i: x.take_along_dim(i, 1), X, SMALL.long()),
    gather=(lambda x, i: x.gather(1, i), X, SMALL.long()),
    gather_bool=(lambda x, i: x.gather(1, i), B, SMALL.long()),
    index_select=(lambda x, i: x.index_select(1, i), X, _integers(4, low=0, high=5)),
    index_add=(
        lambda x, i, y: x.index_add(1, i, y, alpha=2),
        X,
        _integers(6, low=0, high=5),
        _floats(3, 6, 7),
    ),
    index_copy=(lambda x, y: x.index_copy(1, torch.tensor([3, 0]), y), X, _floats(3, 2, 7)),
    index_fill=(lambda x, i: x.index_fill(1, i, 2.5), X, _integers(2, low=0, high=5)),
    index_put=(
        lambda x, i, y: x.index_put((i,), y, accumulate=True),
        X,
        _integers(4, low=0, high=3),
        _floats(4, 5, 7),
    ),
    index_reduce=(
        lambda x, i, y: x.index_reduce(1, i, y, "amax"),
        X,
        _integers(6, low=0, high=5),
        _floats(3, 6, 7),
    ),
    scatter=(lambda x, i, y: x.scatter(1, i, y), X, _integers(3, 1, 7, low=0, high=5), Y),
    scatter_value=(lambda x, i: x.scatter(-1, i, 1.0), X, _integers(3, 5, 2, low=0, high=7)),
    scatter_bool=(lambda b, i: b.scatter(-1, i, True), B, _integers(3, 5, 2, low=0, high=7)),
    scatter_integers=(
        lambda x, i: torch.zeros_like(x).scatter_(1, i, 1),
        WHOLE,
        _integers(3, 2, 7, low=0, high=5),
    ),
    scatter_reduce_value=(
        lambda x, i: torch.scatter(x, 1, i, 2.0, reduce="add"),
        X,
        _integers(3, 2, 7, low=0, high=5),
    ),
    scatter_add=(lambda x, i, y: x.scatter_add(1, i, y), X, _integers(3, 5, 7, low=0, high=5), Y),
    **{
        f"scatter_reduce_{how}{'' if own else '_new'}": (
            lambda x, i, y, how=how, own=own: x.scatter_reduce(1, i, y, how, include_self=own),
            X,
            _integers(3, 5, 7, low=0, high=4),
            Y,
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    },
    select_scatter=(lambda x, y: x.select_scatter(y, 1, 2), X, _floats(3, 7)),
    slice_scatter=(lambda x, y: x.slice_scatter(y, 1, 0, 4, 2), X, _floats(3, 2, 7)),
    masked_index=(lambda x, i: x[:, i], X, _integers(2, 2, low=-5, high=5)),
    fancy_index=(lambda x, i, j: x[i, :, j], X, _integers(4, low=0, high=3), _integers(4, low=0, high=7)),
    embedding=(lambda w, i: F.embedding(i, w), _floats(9, 5), SMALL.long()),
    embedding_bag=(lambda w, i: F.embedding_bag(i, w), _floats(9, 5), _integers(3, 4, low=0, high=9)),
    embedding_bag_sum=(
        lambda w, i: F.embedding_bag(i, w, mode="sum"),
        _floats(9, 5),
        _integers(3, 4, low=0, high=9),
    ),
    embedding_bag_offsets=(
        lambda w, i: F.embedding_bag(i, w, torch.tensor([0, 3, 7]), mode="mean"),
        _floats(9, 5),
        _integers(11, low=0, high=9),
    ),
    embedding_bag_max=(
        lambda w, i: F.embedding_bag(i, w, mode="max"),
        _floats(9, 5),
        _integers(3, 4, low=0, high=9),
    ),
    embedding_bag_weights=(
        lambda w, i, p: F.embedding_bag(i, w, mode="sum", per_sample_weights=p),
        _floats(9, 5),
        _integers(3, 4, low=0, high=9),
        _floats(3, 4),
    ),
    cdist=(torch.cdist, X, _floats(3, 4, 7)),
    cdist_1=(lambda x, y: torch.cdist(x, y, p=1.0), X, _floats(3, 4, 7)),
    cdist_exact=(
        lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
        X,
        _floats(3, 4, 7),
    ),
    cdist_inf=(lambda x, y: torch.cdist(x, y, p=float("inf")), X, _floats(3, 4, 7)),
    pdist=(F.pdist, _floats(5, 7)),
    tensordot=(lambda x, y: torch.tensordot(x, y, ([2], [2])), X, Y),
    einsum=(lambda x, y: torch.einsum("abc,abd->acd", x, y), X, Y),
    einsum_8=(lambda x, y: torch.einsum("abcd,ebcf->adef", x, y), _floats(2, 3, 5, 2), _floats(3, 3, 5, 4)),
    cross=(lambda x, y: torch.linalg.cross(x, y, dim=0), X, Y),
    kron=(torch.kron, _floats(2, 3), _floats(3, 2)),
    outer=(torch.outer, _floats(5), _floats(7)),
    baddbmm=(
        lambda b, x, y: torch.baddbmm(b, x, y, beta=0.5, alpha=2),
        _floats(3, 5, 4),
        X,
        _floats(3, 7, 4),
    ),
    addmm=(lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), _floats(4), _floats(5, 7), _floats(7, 4)),
    addbmm=(lambda b, x, y: torch.addbmm(b, x, y), _floats(5, 4), X, _floats(3, 7, 4)),
    mv=(torch.mv, _floats(5, 7), _floats(7)),
    dot=(torch.dot, _floats(7), _floats(7)),
    bilinear=(F.bilinear, _floats(3, 5), _floats(3, 7), _floats(4, 5, 7)),
    mm_integers=(lambda i, j: i[0] @ j[0].T, WHOLE, OTHERS),
)

_ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu",
    "relu6",
    "rrelu",
    "selu",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
    "hardshrink",
]
NETWORK = _table(
    **{name: (getattr(F, name), X) for name in _ACTIVATIONS},
    gelu_tanh=(lambda x: F.gelu(x, approximate="tanh"), X),
    glu=(lambda x: F.glu(x, 1), _floats(3, 6, 7)),
    prelu=(lambda x, w: F.prelu(x, w), X, _floats(5)),
    threshold=(lambda x: F.threshold(x, 0.1, 20.0), X),
    softplus_beta=(lambda x: F.softplus(x, 2.0, 3.0), X),
    batch_norm=(lambda x, w, b: F.batch_norm(x, w.abs(), b.abs(), w, b), IMAGE, _floats(3), _floats(3)),
    batch_norm_no_stats=(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        IMAGE,
        _floats(3),
        _floats(3),
    ),
    batch_norm_plain=(lambda x: F.batch_norm(x, None, None, training=True), VOLUME),
    instance_norm=(lambda x, w, b: F.instance_norm(x, None, None, w, b), IMAGE, _floats(3), _floats(3)),
    instance_norm_plain=(lambda x: F.instance_norm(x), SIGNAL),
    group_norm=(lambda x, w, b: F.group_norm(x, 2, w, b), _floats(3, 6, 5, 7), _floats(6), _floats(6)),
    group_norm_plain=(lambda x: F.group_norm(x, 3), _floats(3, 6, 7)),
    layer_norm=(lambda x, w, b: F.layer_norm(x, (5, 7), w, b), X, _floats(5, 7), _floats(5, 7)),
    rms_norm=(lambda x, w: F.rms_norm(x, (7,), w), X, _floats(7)),
    local_response_norm=(lambda x: F.local_response_norm(x, 2), IMAGE),
    avg_pool1d=(lambda x: F.avg_pool1d(x, 3, 2, 1), SIGNAL),
    avg_pool2d=(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), IMAGE),
    avg_pool3d=(lambda x: F.avg_pool3d(x, 2), VOLUME),
    max_pool1d=(lambda x: F.max_pool1d(x, 3, 2, 1), SIGNAL),
    max_pool1d_indices=(lambda x: F.max_pool1d(x, 3, 2, return_indices=True), SIGNAL),
    max_pool2d=(lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2), IMAGE),
    max_pool2d_indices=(lambda x: F.max_pool2d(x, 2, return_indices=True), IMAGE),
    max_pool3d=(lambda x: F.max_pool3d(x, 2, 1, 1), VOLUME),
    max_pool3d_indices=(lambda x: F.max_pool3d(x, 2, return_indices=True), VOLUME),
    max_unpool2d=(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), IMAGE[..., :6, :10]),
    lp_pool2d=(lambda x: F.lp_pool2d(x, 2.0, 2), IMAGE.abs()),
    adaptive_avg_1d=(lambda x: F.adaptive_avg_pool1d(x, 4), SIGNAL),
    adaptive_avg_2d=(lambda x: F.adaptive_avg_pool2d(x, (3, 5)), IMAGE),
    adaptive_avg_2d_one=(lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    adaptive_avg_2d_larger=(lambda x: F.adaptive_avg_pool2d(x, (9, 4)), IMAGE),
    adaptive_avg_2d_unbatched=(lambda x: F.adaptive_avg_pool2d(x[0], (3, None)), IMAGE),
    adaptive_avg_3d=(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), VOLUME),
    adaptive_avg_3d_one=(lambda x: F.adaptive_avg_pool3d(x, 1), VOLUME),
    adaptive_max_1d=(lambda x: F.adaptive_max_pool1d(x, 4), SIGNAL),
    adaptive_max_2d=(lambda x: F.adaptive_max_pool2d(x, (3, 5)), IMAGE),
    adaptive_max_2d_one=(lambda x: F.adaptive_max_pool2d(x, 1), IMAGE),
    adaptive_max_2d_indices=(lambda x: F.adaptive_max_pool2d(x, (3, 5), return_indices=True), IMAGE),
    adaptive_max_3d=(lambda x: F.adaptive_max_pool3d(x, (2, 3, 4)), VOLUME),
    im2col=(lambda x: F.unfold(x, (3, 2), dilation=2, padding=1, stride=(2, 1)), IMAGE),
    col2im=(lambda x: F.fold(x, (5, 7), (2, 3), padding=1, stride=2), _floats(2, 18, 12)),
    **{
        f"{mode}_{dims}d{'_aligned' if aligned else ''}_{by}": (
            lambda x, mode=mode, aligned=aligned, given=given: F.interpolate(
                x, **given, mode=mode, **aligned
            ),
            x,
        )
        for mode, dims, x, size in (
            ("nearest", 1, SIGNAL, (17,)),
            ("nearest", 2, IMAGE, (5, 17)),
            ("nearest", 3, VOLUME, (7, 5, 9)),
            ("nearest-exact", 1, SIGNAL, (17,)),
            ("nearest-exact", 2, IMAGE, (5, 17)),
            ("nearest-exact", 3, VOLUME, (7, 5, 9)),
            ("linear", 1, SIGNAL, (17,)),
            ("bilinear", 2, IMAGE, (5, 17)),
            ("bicubic", 2, IMAGE, (5, 17)),
            ("trilinear", 3, VOLUME, (7, 5, 9)),
            ("area", 2, IMAGE, (5, 17)),
        )
        for aligned in ([{}, {"align_corners": True}] if "linear" in mode or mode == "bicubic" else [{}])
        for by, given in (("size", {"size": size}), ("factor", {"scale_factor": 1.7}))
    },
    antialias=(lambda x: F.interpolate(x, (3, 5), mode="bilinear", antialias=True), IMAGE),
    antialias_cubic=(lambda x: F.interpolate(x, (3, 5), mode="bicubic", antialias=True), IMAGE),
    **{
        f"grid_sample_{mode}_{padding}": (
            lambda x, g, mode=mode, padding=padding: F.grid_sample(x, g, mode, padding, align_corners=False),
            IMAGE,
            _floats(2, 5, 6, 2),
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
    },
    **{
        f"grid_sample_3d_{mode}_{padding}": (
            lambda x, g, mode=mode, padding=padding: F.grid_sample(x, g, mode, padding, align_corners=True),
            VOLUME,
            _floats(2, 5, 6, 4, 3),
        )
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
    },
    affine_grid=(lambda t: F.affine_grid(t, [2, 3, 5, 7], align_corners=False), _floats(2, 2, 3)),
    pixel_shuffle=(lambda x: F.pixel_shuffle(x, 2), _floats(2, 8, 3, 5)),
    pixel_unshuffle=(lambda x: F.pixel_unshuffle(x, 2), _floats(2, 3, 4, 6)),
    channel_shuffle=(lambda x: F.channel_shuffle(x, 2), _floats(2, 6, 3, 5)),
    pad_reflect=(lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), IMAGE),
    pad_replicate=(lambda x: F.pad(x, (2, 1, 1, 2), mode="replicate"), IMAGE),
    pad_circular=(lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"), IMAGE),
    pad_negative=(lambda x: F.pad(x, (-2, 1), value=3.0), IMAGE),
    pad_bool=(lambda b: F.pad(b, (2, 1), value=True), B),
    conv1d=(lambda x, w: F.conv1d(x, w, stride=2, padding=1), SIGNAL, _floats(4, 3, 3)),
    conv2d_same=(lambda x, w: F.conv2d(x, w, padding="same", dilation=2), IMAGE, _floats(4, 3, 3, 2)),
    conv2d_groups=(lambda x, w: F.conv2d(x, w, groups=3), IMAGE, _floats(6, 1, 3, 3)),
    conv3d=(lambda x, w: F.conv3d(x, w, stride=2), VOLUME, _floats(4, 3, 2, 3, 3)),
    conv_transpose1d=(
        lambda x, w: F.conv_transpose1d(x, w, stride=2, output_padding=1),
        SIGNAL,
        _floats(3, 4, 3),
    ),
    conv_transpose2d=(lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=3), IMAGE, _floats(3, 2, 3, 3)),
    conv_transpose3d=(lambda x, w: F.conv_transpose3d(x, w, stride=2), VOLUME, _floats(3, 2, 2, 3, 3)),
    attention=(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        _floats(2, 3, 5, 8),
        _floats(2, 3, 5, 8),
        _floats(2, 3, 5, 8),
    ),
    cross_entropy=(F.cross_entropy, _floats(5, 7), _integers(5, low=0, high=7)),
    mse_loss=(F.mse_loss, X, Y),
    bce=(F.binary_cross_entropy_with_logits, X, POSITIVE.clamp(0, 1)),
    smooth_l1=(F.smooth_l1_loss, X, Y),
    huber=(F.huber_loss, X, Y),
    kl_div=(F.kl_div, X, POSITIVE),
    dropout=(lambda x: F.dropout(x, 0.5, training=False), X),
    gumbel_free=(lambda x: F.softmax(x / 0.7, -1).cumsum(-1) < 0.9, X),
)

TABLES = {
    "arithmetic": ARITHMETIC,
    "creation": CREATION,
    "reduction": REDUCTION,
    "order": ORDER,
    "network": NETWORK,
}
