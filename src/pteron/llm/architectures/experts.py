"""Mixtures of experts: a router chooses k MLPs for each token; only their weights are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pteron.dtypes import DType
from pteron.errors import FormatError
from pteron.format.stored_tensor import Array, StoredTensor
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.names import Names, Rule
from pteron.llm.architectures.parts import Part, activation
from pteron.llm.network.graph import Tensor
from pteron.llm.network.network import Network


@dataclass(frozen=True)
class Router:
    """The k experts with the highest scores, and their weights; weights are at `<place>.router`."""

    count: int
    k: int
    scoring: str = "softmax"  # or "sigmoid"
    normalised: bool = True  # weights are divided by their sum
    scale: float = 1.0  # of weights
    has_correction: bool = False  # `<place>.correction` [count] is added to scores to choose by
    groups: int = 1  # of experts; only those of the best groups are chosen,
    kept_groups: int = 1  # that many,
    group_best: int = 1  # by the sum of that many of the best scores

    def __post_init__(self) -> None:
        if not 0 < self.k <= self.count:
            raise FormatError(f"{self.k} of {self.count} experts for each token")

    def __call__(self, net: Network, x: Tensor, place: str) -> tuple[Tensor, Tensor]:
        """Weights and numbers of experts, [tokens, k]."""
        logits = net.float_linear(x, f"{place}.router", self.count)
        correction = None
        if self.has_correction:
            name = f"{place}.correction"
            stored = net.weight(name if net.has(name) else f"{name}.bias")  # as in GGUF files
            correction = net.computed(stored.read().reshape(self.count))
        sizes = (x.sizes[0], self.k)
        weights, experts = net.graph.call_many(
            "pteron.route.default",
            *(logits, self.k, self.scoring, correction, self.groups, self.kept_groups, self.group_best),
            *(self.normalised, self.scale),
            out=[(net.dtype, sizes), (DType.I32, sizes)],
        )
        return weights, experts


@dataclass(frozen=True)
class Gated:
    """activation(gate) * up."""

    activation: str

    def __call__(self, net: Network, gate: Tensor, up: Tensor) -> Tensor:
        return net.multiply(activation(self.activation)(net, gate), up)


@dataclass(frozen=True)
class Experts:
    """The weighted sum of w2(gate(w1 x, w3 x)) of each token's experts, plus shared experts."""

    router: Router
    gate: Callable[[Network, Tensor, Tensor], Tensor]
    shared: Part | None = None  # an MLP of all tokens, at `<place>.shared`
    shared_gate: bool = False  # the shared MLP's result is multiplied with sigmoid(`<place>.shared_gate` x)
    scales_input: bool = False  # the weight multiplies x, not the result; for k = 1

    def __call__(self, net: Network, x: Tensor, place: str) -> Tensor:
        flat = net.view(x, *x.sizes[1:])
        weights, experts = self.router(net, flat, place)

        def product(of: Tensor, kind: str) -> Tensor:
            return net.experts_linear(of, experts, f"{place}.experts.{{}}.{kind}", self.router.count)

        given = net.multiply(flat, weights) if self.scales_input else flat
        down = product(self.gate(net, product(given, "w1"), product(given, "w3")), "w2")
        if not self.scales_input:
            down = net.graph.call("pteron.combine.default", down, weights, out=flat.sizes)
        y = net.view(down, *x.sizes)
        if self.shared is None:
            return y
        common = self.shared(net, x, f"{place}.shared")
        if self.shared_gate:
            logits = net.view(net.float_linear(flat, f"{place}.shared_gate", 1), *x.sizes[:2], 1)
            common = net.multiply(common, net.unary("aten.sigmoid.default", logits))
        return net.add(y, common)


def flattened(place: str, function: Callable[[Array], Array] = lambda matrix: matrix) -> Rule:
    """The matrices of all experts in one tensor [experts, rows, columns]; vectors stay as they are."""
    return lambda _, tensor: {place: tensor.flattened(function) if len(tensor.shape) == 3 else tensor}


def halved(first: str, second: str) -> Rule:
    """The same with two matrices for each expert, one below the other: gate and up."""

    def rule(_: Config, tensor: StoredTensor) -> dict[str, StoredTensor]:
        half = tensor.shape[1] // 2
        return {
            first: tensor.flattened(lambda matrix: matrix[:half]),
            second: tensor.flattened(lambda matrix: matrix[half:]),
        }

    return rule


_FEED = "layers.{}.feed_forward"
_KINDS = {"gate": "w1", "down": "w2", "up": "w3"}
# Of Qwen, and of most families after it.
EXPERTS: Names = {
    "model.layers.{}.mlp.gate": f"{_FEED}.router",
    **{
        f"model.layers.{{}}.mlp.experts.{{}}.{kind}_proj": f"{_FEED}.experts.{{}}.{ours}"
        for kind, ours in _KINDS.items()
    },
    **{
        f"model.layers.{{}}.mlp.{shared}.{kind}_proj": f"{_FEED}.shared.{ours}"
        for shared in ("shared_expert", "shared_experts")
        for kind, ours in _KINDS.items()
    },
    "model.layers.{}.mlp.shared_expert_gate": f"{_FEED}.shared_gate",
    "model.layers.{}.mlp.gate.e_score_correction_bias": f"{_FEED}.correction",
    "model.layers.{}.mlp.moe_statics.e_score_correction_bias": f"{_FEED}.correction",
}
GGUF_EXPERTS: Names = {
    "blk.{}.ffn_gate_inp": f"{_FEED}.router",
    **{f"blk.{{}}.ffn_{kind}_exps": flattened(f"{_FEED}.experts.{ours}") for kind, ours in _KINDS.items()},
    "blk.{}.ffn_gate_up_exps": halved(f"{_FEED}.experts.w1", f"{_FEED}.experts.w3"),  # in some newer files
    **{f"blk.{{}}.ffn_{kind}_shexp": f"{_FEED}.shared.{ours}" for kind, ours in _KINDS.items()},
    "blk.{}.exp_probs_b": f"{_FEED}.correction",
    # Stored as a vector.
    "blk.{}.ffn_gate_inp_shexp": lambda _, tensor: {
        f"{_FEED}.shared_gate": tensor.rearranged(lambda row: row.reshape(1, -1))
    },
}


def count_of(config: Mapping[str, Any]) -> int:
    """The number of experts, by the key that the configuration has; 0 if it has none."""
    keys = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    return int(next((config[key] for key in keys if config.get(key)), 0))


def experts_of(config: Config, shared: Part | None = None, **options: Any) -> Experts:
    """The experts of a configuration, with gated MLPs. `options` are those of the router."""
    router = Router(count_of(config), chosen_of(config), **options)
    return Experts(router, Gated(config.activation()), shared)


def chosen_of(config: Mapping[str, Any]) -> int:
    return int(config["num_experts_per_tok"] if "num_experts_per_tok" in config else config["moe_k"])


def sigmoid_experts(config: Config) -> list[Part]:
    """Experts of DeepSeek V3, also of GLM: sigmoid scores, corrected choices, groups."""
    options = {"normalised": bool(config.get("norm_topk_prob", True)), **groups_of(config, 2)}
    return experts_after_dense(config, scoring="sigmoid", has_correction=True, **options)


def groups_of(config: Config, best: int) -> dict[str, Any]:
    groups, kept = int(config.get("n_group") or 1), int(config.get("topk_group") or 1)
    return {"groups": groups, "kept_groups": kept, "group_best": best} if groups > 1 else {}


def experts_after_dense(config: Config, **options: Any) -> list[Part]:
    """Experts in all layers but the first ones. `options` are those of the router."""
    first = int(config.get("first_k_dense_replace") or 0)
    shared = config.mlp if config.get("n_shared_experts") else None
    scale = float(config.get("routed_scaling_factor", 1.0))
    experts = experts_of(config, shared, scale=scale, **options)
    return [experts if layer >= first else config.mlp for layer in config.layers]
