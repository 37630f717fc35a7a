"""Decompositions of LSTM, GRU and RNN layers: short sequences are unrolled, long ones become a `scan` over
blocks of steps. ExecuTorch writes a scan as a loop in the program.

Products with the input are computed for all steps at once, before the loop, as in PyTorch's decompositions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch._decomp import decompositions as torch_decompositions
from torch._higher_order_ops.scan import scan_op

_UNROLLED_MAX = 32  # steps
_BLOCK = 8  # steps in the body of a loop: each iteration costs a delegate call and copies of the state

aten = torch.ops.aten
State: TypeAlias = list[torch.Tensor]
# The input's product, the state and the weights of a layer -> the new state; its first tensor is the output.
Cell: TypeAlias = Callable[[torch.Tensor, State, Sequence[torch.Tensor]], State]


def recurrent_decompositions() -> Mapping[Any, Callable[..., Any]]:
    return {
        aten.lstm.input: _lstm,
        aten.gru.input: partial(_rnn, cell=_gru_cell),
        aten.rnn_tanh.input: partial(_rnn, cell=_tanh_cell),
        aten.rnn_relu.input: partial(_rnn, cell=_relu_cell),
    }


def _lstm(
    input: torch.Tensor,
    hx: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    *rest: Any,
) -> Any:
    has_projections = hx[0].shape[2] != hx[1].shape[2]
    gathered = torch_decompositions.gather_params(params, has_biases, has_projections)
    hidden = list(zip(hx[0], hx[1], strict=True))
    layer = partial(_layer, cell=_lstm_cell)
    out, states = torch_decompositions._rnn_helper(input, hidden, gathered, has_biases, *rest, layer)
    hidden_states, cells = zip(*states, strict=True)
    return out, torch.stack(hidden_states, 0), torch.stack(cells, 0)


def _rnn(
    input: torch.Tensor,
    hx: torch.Tensor,
    params: Sequence[torch.Tensor],
    has_biases: bool,
    *rest: Any,
    cell: Cell,
) -> Any:
    gathered = torch_decompositions.gather_params(params, has_biases, False)
    hidden = [(each,) for each in hx.unbind(0)]
    layer = partial(_layer, cell=cell)
    out, states = torch_decompositions._rnn_helper(input, hidden, gathered, has_biases, *rest, layer)
    return out, torch.stack([state for (state,) in states], 0)


def _layer(
    inputs: torch.Tensor,
    hidden: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    reverse: bool = False,
    *,
    cell: Cell,
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """One direction of one layer, of inputs [steps, batch, features]."""
    products = torch.nn.functional.linear(inputs, params[0], params[2] if has_biases else None)
    products = products.flip(0) if reverse else products
    weights = [params[1], *params[3:]] if has_biases else [params[1], *params[2:]]
    if not has_biases:
        weights.insert(1, torch.zeros_like(params[1][:, 0]))
    outputs, state = _run(products, [each.unsqueeze(0) for each in hidden], weights, cell)
    return outputs.flip(0) if reverse else outputs, tuple(each.squeeze(0) for each in state)


def _run(
    products: torch.Tensor, state: State, weights: Sequence[torch.Tensor], cell: Cell
) -> tuple[torch.Tensor, State]:
    steps = products.shape[0]
    if steps <= _UNROLLED_MAX:
        return _unrolled(products, state, weights, cell)
    count, left = divmod(steps, _BLOCK)
    blocks = products[: count * _BLOCK].reshape(count, _BLOCK, *products.shape[1:])
    size = len(state)

    def body(*operands: torch.Tensor) -> list[torch.Tensor]:
        outputs, new = _unrolled(operands[size], list(operands[:size]), operands[size + 1 :], cell)
        return [*new, outputs]

    *state, stacked = scan_op(body, state, [blocks], tuple(weights))
    outputs = stacked.reshape(count * _BLOCK, *stacked.shape[2:])
    if left:
        last, state = _unrolled(products[-left:], state, weights, cell)
        outputs = torch.cat([outputs, last], 0)
    return outputs, state


def _unrolled(
    products: torch.Tensor, state: State, weights: Sequence[torch.Tensor], cell: Cell
) -> tuple[torch.Tensor, State]:
    outputs = []
    for product in products.unbind(0):
        state = cell(product, state, weights)
        outputs.append(state[0])
    return torch.cat(outputs, 0), state


def _lstm_cell(product: torch.Tensor, state: State, weights: Sequence[torch.Tensor]) -> State:
    weight, bias, *projection = weights
    hidden, cell = torch_decompositions.lstm_cell(
        product, *state, weight, bias, projection[0] if projection else None, chunk_dim=2
    )
    return [hidden, cell]


def _gru_cell(product: torch.Tensor, state: State, weights: Sequence[torch.Tensor]) -> State:
    return [torch_decompositions.gru_cell(product, state[0], None, None, *weights)]


def _tanh_cell(product: torch.Tensor, state: State, weights: Sequence[torch.Tensor]) -> State:
    return [torch.tanh(torch.nn.functional.linear(state[0], *weights) + product)]


def _relu_cell(product: torch.Tensor, state: State, weights: Sequence[torch.Tensor]) -> State:
    return [torch.relu(torch.nn.functional.linear(state[0], *weights) + product)]
