"""Layers with a recurrent state of fixed size, and rules for their tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pteron.dtypes import DType
from pteron.llm.architectures.names import Rule
from pteron.llm.architectures.parts import Part, activation
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import Network


def short_conv(net: Network, x: Tensor, place: str, *, silu: bool = False) -> Tensor:
    """A causal convolution of each channel of x [1, tokens, channels], with weights `<place>` [channels,
    taps] and the bias that the checkpoint has."""
    weight = net.float_constant(f"{place}.weight")
    bias = net.float_constant(f"{place}.bias") if net.has(f"{place}.bias") else None
    channels, taps = weight.shape
    state = net.state((1, taps - 1, channels))
    arguments = (x, weight, bias, silu, state, net.start)
    return net.graph.call("pteron.short_conv.default", *arguments, out=x.sizes)


@dataclass(frozen=True)
class GatedDeltaNet:
    """wo(norm(delta rule(q, k, v)) * silu(wg x)), where q, k and v are convolutions of a projection of x. The
    state decays by exp(decay * softplus(alpha x)), and values are written at the rate sigmoid(beta x)."""

    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    norm: Part

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        queries, keys, values = self._projected(net, x, place)
        decay = net.prepacked(net.float_constant(f"{place}.decay"))
        alpha = net.unary("aten.softplus.default", self._by_head(net, x, f"{place}.alpha"), 1.0, 20.0)
        beta = net.unary("aten.sigmoid.default", self._by_head(net, x, f"{place}.beta"))
        state = net.state((1, self.value_heads, self.key_width, self.value_width), DType.F32)
        rates = net.multiply(alpha, decay), beta
        arguments = (queries, keys, values, *rates, state, net.start)
        mixed = net.graph.call("pteron.gated_delta_rule.default", *arguments, out=values.sizes)
        gate = activation("silu")(net, net.linear(x, f"{place}.wg", *values.shape[2:]))
        return net.linear(net.multiply(self.norm(net, mixed, f"{place}.norm"), gate), f"{place}.wo")

    def _projected(self, net: Network, x: Tensor, place: str) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys of unit length, queries divided by √key_width; values."""
        keys, values = (self.key_heads, self.key_width), (self.value_heads, self.value_width)
        widths = tuple(heads * width for heads, width in (keys, keys, values))
        mixed = short_conv(net, net.linear(x, f"{place}.wqkv"), f"{place}.conv", silu=True)
        parts = net.graph.call_many(
            "aten.split_with_sizes_copy.default",
            *(mixed, widths, 2),
            out=[(net.dtype, (*x.sizes[:2], width)) for width in widths],
        )
        q, k, v = (
            net.view(part, *x.sizes[:2], *of) for part, of in zip(parts, (keys, keys, values), strict=True)
        )
        return _unit(net, q, self.key_width**-0.5), _unit(net, k), v

    def _by_head(self, net: Network, x: Tensor, place: str) -> Tensor:
        flat = net.float_linear(net.view(x, *x.sizes[1:]), place, self.value_heads)
        return net.view(flat, *x.sizes[:2], self.value_heads)


def _unit(net: Network, x: Tensor, scale: float = 1.0) -> Tensor:
    """scale · x / √(Σx² + 1e-6), as a norm of the mean square."""
    width = x.shape[-1]
    weight = net.computed(np.full(width, scale * width**-0.5, np.float32))
    return net.graph.call("et_vk.rms_norm.default", x, weight, 1e-6 / width, out=x.sizes)


def taps(place: str) -> Rule:
    """The weights of a convolution, [channels, 1, taps]; a bias stays as it is."""
    return lambda _, tensor: {
        place: tensor.rearranged(lambda array: array.reshape(len(array), -1) if array.ndim > 1 else array)
    }
