"""The likeliest token of every row of logits, each the next of a sequence of its own, found on the GPU.

Not an exported operator, but one that the loop over several sequences uses: tokens and positions lie by slot,
where the model's next step finds them.
"""

from __future__ import annotations

from collections.abc import Iterator

from pteron.dtypes import DType, Storage
from pteron.graph import Constant, Graph, Node, Shape, Tensor
from pteron.llm.sampling.operator import LANES_MERGING, RING
from pteron.llm.sampling.row import BLOCK, LANES, LANES_OF_A_CPU
from pteron.ops import Dispatch, Operand, Scratch, Target, op, require
from pteron.ops.rows import shared_rows
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

GREEDY_ROWS = "pteron.greedy_rows"
LOGITS, SLOTS, TOKENS, POSITIONS, DRAWN = range(5)  # value ids of the graph


def _shape(logits: Operand, slots: Operand, tokens: Operand, positions: Operand) -> Shape:
    fits = logits.rank == 2 and slots.shape == logits.shape[:1] and logits.shape[1] > 0
    require(fits, "logits are [rows, vocabulary], with a slot for each row", logits, slots)
    require(
        tokens.shape == positions.shape, "there is a token and a position for each slot", tokens, positions
    )
    return (tokens.numel, RING, 2)


@op(GREEDY_ROWS, "logits slots tokens! positions! -> drawn", shape=_shape)
def greedy_rows(
    logits: Operand,
    slots: Operand,
    tokens: Operand,
    positions: Operand,
    drawn: Operand,
    *,
    target: Target,
) -> Iterator[Dispatch]:
    rows, vocabulary = logits.shape
    if rows == 0:
        return
    blocks = -(-vocabulary // BLOCK)
    picks = Scratch(4 * blocks * rows, Storage.U32)
    yield Dispatch(
        kernel("greedy_rows_scan", **_lanes(target, LANES)),
        logits=logits,
        picks=picks,
        vocabulary=vocabulary,
        block=BLOCK,
        groups=(blocks, rows, 1),
    )
    yield Dispatch(
        kernel("greedy_rows_draw", **_lanes(target, LANES_MERGING), RING=RING),
        picks=picks,
        slots=slots,
        tokens=tokens,
        positions=positions,
        drawn=drawn,
        block_count=blocks,
        slot_count=tokens.numel,
        groups=(rows, 1, 1),
    )


def _lanes(target: Target, most: int) -> dict[str, object]:
    layout = shared_rows(target, min(most, LANES_OF_A_CPU) if target.is_cpu else most, 1)
    return {**layout, "use_best": "best_subgroup"} if "use_rows" in layout else layout


def greedy_graph(rows: int, vocabulary: int, slots: int, dtype: DType) -> Graph:
    """One call of the operator for up to so many rows. Tokens and positions are states, so that other memory
    can stand in their place; what was drawn is one too."""
    logits, chosen = Tensor(LOGITS, dtype, (rows, vocabulary)), Tensor(SLOTS, DType.I32, (rows,))
    tokens, positions = _state(TOKENS, (slots,)), _state(POSITIONS, (slots,))
    drawn = _state(DRAWN, (slots, RING, 2))
    node = Node(0, GREEDY_ROWS, (logits, chosen, tokens, positions, drawn))
    return Graph("greedy rows", (node,), inputs=(logits, chosen), outputs=(drawn,), is_internal=True)


def _state(id: int, shape: Shape) -> Tensor:
    return Tensor(id, DType.I32, shape, Constant(f"rows {id}", DType.I32, shape, memoryview(b"")))
