"""What operators are decomposed into computes what PyTorch's own operators compute, without export or GPU."""

# mypy: disable-error-code="misc, no-untyped-call"

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pteron.export.decompositions import own_decompositions  # noqa: E402
from pteron.export.gradients import gradient_decompositions  # noqa: E402

aten = torch.ops.aten
INF, NAN = math.inf, math.nan


def _floats(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


X, Y = _floats(5, 7), _floats(4, 7)
TO_FEW = torch.tensor([[0, 2, 2, 0, 2, 2, 0]] * 4)  # rows 1, 3 and 4 get nothing
BAGS = (
    _floats(9, 3),
    torch.tensor([3, 1, 4, 1, 5, 8]),
    torch.tensor([0, 2, 2, 5]),
)  # the second one is empty
WITH_NANS = torch.tensor([[3.0, NAN, 1.0, NAN], [2.0, -INF, INF, 2.0], [1.0, 1.0, 1.0, 1.0]])
IMAGE = _floats(1, 2, 7, 9)

# Arguments of calls, by operator.
CALLS: dict[Any, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    aten._cdist_forward.default: [
        ((_floats(2, 5, 3), _floats(1, 4, 3), p, None), {}) for p in (0.0, 1.0, 2.0, INF)
    ],
    aten._embedding_bag_forward_only.default: [((*BAGS, False, mode), {}) for mode in (0, 1, 2)],
    aten._embedding_bag.default: [
        ((*BAGS, False, mode, False, weights, False, padding), {})
        for mode, weights, padding in ((0, _floats(6), -1), (1, None, 1), (2, None, 8))
    ],
    aten._native_batch_norm_legit.no_stats: [
        ((_floats(count, 3, 4), _floats(3), None, True, 0.1, 1e-5), {}) for count in (1, 2)
    ],
    aten._pdist_forward.default: [((X, p), {}) for p in (1.0, 2.0, INF)],
    # as F.bilinear calls it
    aten._trilinear.default: [((Y, _floats(2, 7, 3), _floats(4, 3), [1, 3], [0], [1, 2], [2, 3]), {})],
    aten._upsample_bicubic2d_aa.default: [((IMAGE, size, False), {}) for size in ([3, 4], [11, 5])],
    aten._upsample_bilinear2d_aa.default: [((IMAGE, [3, 11], align), {}) for align in (False, True)],
    aten.addbmm.default: [((X, _floats(3, 5, 2), _floats(3, 2, 7)), {"beta": 0.5, "alpha": 2.0})],
    aten.bucketize.Tensor: [
        ((X, torch.tensor([-1.0, 0.0, 0.0, 1.0])), {"right": right}) for right in (False, True)
    ],
    aten.copy.default: [((X, torch.tensor([1, 2, 3, 4, 5, 6, 7])), {})],
    aten.histc.default: [((X, 5, -1.0, 1.0), {}), ((X, 7), {}), ((torch.ones(3), 4), {})],
    aten.index_reduce.default: [
        ((X, 0, torch.tensor([2, 0, 2, 4]), Y, how), {"include_self": own})
        for how in ("prod", "mean", "amax", "amin")
        for own in (True, False)
    ],
    aten.kthvalue.default: [((X, 3, 1, True), {}), ((torch.tensor(2.0), 1), {})],
    aten.masked_scatter.default: [((X, X > 0, _floats(35)), {})],
    aten.median.default: [((X,), {}), ((WITH_NANS,), {})],
    aten.median.dim: [((WITH_NANS, 1), {}), ((torch.tensor([4, 1, 3, 2]), 0, True), {})],
    aten.rrelu_with_noise_functional.default: [((X, torch.zeros_like(X)), {})],
    aten.scalar_tensor.default: [((2.5,), {}), ((3,), {"dtype": torch.int64})],
    aten.scatter.reduce: [((X, 0, TO_FEW, Y), {"reduce": how}) for how in ("add", "multiply")],
    aten.scatter.value_reduce: [((X, 0, TO_FEW, 3.0), {"reduce": how}) for how in ("add", "multiply")],
    aten.scatter_reduce.two: [
        ((x, 0, TO_FEW, y, how), {"include_self": own})
        for x, y in ((X, Y), ((X * 9).long(), (Y * 9).long()))
        for how in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    ],
    aten.sort.stable: [
        ((WITH_NANS,), {"stable": True, "dim": 1, "descending": down}) for down in (False, True)
    ],
    aten.var_mean.correction: [((X, [1]), {"correction": 0}), ((X,), {"correction": 1, "keepdim": True})],
}
# Results of which only the first are used.
FIRST = {
    aten._embedding_bag.default,
    aten._embedding_bag_forward_only.default,
    aten._native_batch_norm_legit.no_stats,
}


def test_every_decomposition_is_called() -> None:
    assert {*CALLS, aten.empty_permuted.default} == set(own_decompositions())


def test_memory_without_content_is_zeros() -> None:
    for size, order in (((2, 3, 5), (2, 0, 1)), ((2, 3, 5), (0, 1, 2)), ((7,), (0,))):
        found = own_decompositions()[aten.empty_permuted.default](size, order, dtype=torch.int64)
        expected = aten.empty_permuted.default(size, order, dtype=torch.int64)
        assert (found.shape, found.stride(), found.dtype) == (
            expected.shape,
            expected.stride(),
            expected.dtype,
        )
        assert not found.any()


def _results(operator: Any, result: Any) -> Iterator[Any]:
    yield from (result[:1] if operator in FIRST else result) if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("operator", CALLS, ids=str)
def test_decompositions(operator: Any) -> None:
    decompose = own_decompositions()[operator]
    for positional, named in CALLS[operator]:
        found = decompose(*positional, **named)
        if found is NotImplemented:
            continue  # it stays as it is
        expected = operator(*positional, **named)
        for one, other in zip(_results(operator, found), _results(operator, expected), strict=True):
            try:
                torch.testing.assert_close(one, other, equal_nan=True)
            except AssertionError as error:
                error.add_note(f"with {positional} {named}")
                raise


# Gradients ---------------------------------------------------------------------------------------

# sizes of input and weight; stride, padding, dilation, transposed, output padding, groups
CONVOLUTIONS = [
    ((2, 3, 11), (5, 3, 4), (3,), (2,), (2,), False, (0,), 1),
    ((3, 4, 7, 10), (6, 2, 3, 2), (2, 3), (1, 0), (1, 2), False, (0, 0), 2),
    ((1, 5, 7, 5), (5, 1, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 5),
    ((2, 2, 5, 4, 6), (3, 2, 2, 1, 3), (2, 1, 2), (0, 0, 1), (1, 1, 1), False, (0, 0, 0), 1),
    ((2, 4, 5, 3), (4, 3, 3, 2), (2, 3), (1, 0), (1, 1), True, (1, 2), 2),
]


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@pytest.mark.parametrize("mask", [(True, True, True), (False, True, False)])
def test_gradients_of_a_convolution(convolution: Any, mask: tuple[bool, ...]) -> None:
    size, weight_size, *rest = convolution
    x, weight = _floats(*size).double(), _floats(*weight_size).double()
    out = aten.convolution(x, weight, None, *rest)
    channels = [out.shape[1]]
    given = (_floats(*out.shape).double(), x, weight, channels, *rest, mask)
    found = gradient_decompositions()[aten.convolution_backward.default](*given)
    for one, other in zip(found, aten.convolution_backward(*given), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("is_causal", "mask", "scale"), [(True, None, None), (False, _floats(5, 7), 0.3)])
def test_gradients_of_attention(is_causal: bool, mask: Any, scale: float | None) -> None:
    keys = 5 if is_causal else 7
    q, k, v, grad = (_floats(2, 3, rows, 8) for rows in (5, keys, keys, 5))
    options = {"attn_mask": mask, "scale": scale}
    forward = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal, **options)
    operator = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    given = (grad, q, k, v, *forward, 0.0, is_causal)
    found = gradient_decompositions()[operator](*given, **options)
    for one, other in zip(found, operator(*given, **options), strict=True):
        torch.testing.assert_close(one, other)
