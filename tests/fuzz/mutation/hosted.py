"""Programs for the host alone: values of every kind, calls of host operators on them, moves, jumps, frees."""

from __future__ import annotations

from random import Random

from flatbuffer_writer import Field, Fields, Scalar, ScalarVector, int8, int32, int32s, int64, int64s, uint32
from program_writer import call_of, chain_of, plan_of, program_bytes, value_of

_PRIMS = [
    "add",
    "sub",
    "mul",
    "floordiv",
    "truediv",
    "mod",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "sym_max",
    "sym_min",
]
# By the kinds of their arguments: T a tensor, O one that is written, n a number, i an integer, b a boolean,
# s a string, I integers, L tensors, d an element type, - nothing.
_OPERATORS = {
    **{f"executorch_prim::{name}.Scalar": "nnr" for name in _PRIMS},
    **{f"executorch_prim::{name}.int": "iir" for name in _PRIMS},
    **{f"executorch_prim::{name}.Scalar": "nr" for name in ("neg", "sym_float", "ceil", "round", "trunc")},
    "executorch_prim::et_view.default": "TIO",
    "executorch_prim::et_copy_index.tensor": "OTi",
    "aten::sym_size.int": "Tir",
    "aten::sym_numel": "Tr",
    "aten::_local_scalar_dense": "Tr",
    "dim_order_ops::_empty_dim_order.out": "IIO",
    "dim_order_ops::_to_dim_order_copy.out": "TbIO",
    "aten::add.out": "TTnO",
    "aten::mul.out": "TTO",
    "aten::div.out": "TTO",
    "aten::div.out_mode": "TTsO",
    "aten::add_.Tensor": "OTnO",
    "aten::copy_": "OTbO",
    "aten::bmm.out": "TTO",
    "aten::mm.out": "TTO",
    "aten::cat.out": "LiO",
    "aten::clamp.out": "TnnO",
    "aten::cumsum.out": "TidO",
    "aten::embedding.out": "TTibbO",
    "aten::index_select.out": "TiTO",
    "aten::gather.out": "TiTbO",
    "aten::full.out": "InO",
    "aten::arange.start_out": "nnnO",
    "aten::repeat.out": "TIO",
    "aten::permute_copy.out": "TIO",
    "aten::slice_copy.Tensor_out": "TiiiiO",
    "aten::select_copy.int_out": "TiiO",
    "aten::expand_copy.out": "TIbO",
    "aten::sum.IntList_out": "TIbdO",
    "aten::mean.out": "TIbdO",
    "aten::argmax.out": "TibO",
    "aten::_softmax.out": "TibO",
    "aten::native_layer_norm.out": "TITTnOOO",
    "aten::convolution.out": "TTTIIIbIiO",
    "aten::max_pool2d_with_indices.out": "TIIIIbOO",
    "aten::avg_pool2d.out": "TIIIbbiO",
    "aten::upsample_nearest2d.vec_out": "TI-O",
    "aten::topk.values": "TiibbOO",
    "aten::sort.values": "TibOO",
    "aten::where.self_out": "TTTO",
    "aten::scatter.value_out": "TiTnO",
    "aten::pow.Tensor_Scalar_out": "TnO",
    "aten::_to_copy.out": "TbdO",
    "aten::to.dtype_out": "TdbbdO",
    "aten::embedding_bag": "TTTbibTbiOOOO",
    "aten::from_file": "sbidddb",
    "aten::set_.source_Tensor": "OTO",
    "aten::resize_": "OIdO",
    "aten::as_strided_copy.out": "TIIiO",
    "aten::view_as_complex": "TO",
    "nonexistent::operator": "TO",
}  # fmt: skip
_INTEGERS = (0, 1, 2, 3, -1, -2, 7, 64, 1000, 2**31 - 1, 2**31, -(2**63), 2**63 - 1, 10**9)
_NUMBERS = (0.0, 1.0, -1.5, 1e308, float("nan"), float("inf"), 0.5)
_TEXTS = ("", "floor", "trunc", "%999999999d", "a" * 50, "{0}")
_TYPES = {6: 4, 7: 8, 4: 8, 3: 4, 11: 1, 5: 2, 1: 1, 0: 1, 15: 2}  # bytes by ExecuTorch's code of a type


class _Making:
    """A program in the making."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.values: list[Fields] = []
        self.by_kind: dict[str, list[int]] = {}
        self.constants: list[Fields] = [Fields({})]  # the first is none

    def add(self, kind: str, value: Fields) -> int:
        self.values.append(value)
        self.by_kind.setdefault(kind, []).append(len(self.values) - 1)
        return len(self.values) - 1

    def tensor(self, *, written: bool) -> int:
        random = self.random
        dtype = random.choice((6, 6, 6, *_TYPES))
        sizes = [random.choice((1, 2, 3, 3, 4, 0, 16)) for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4)))]
        if random.random() < 0.02:
            sizes = [random.choice((2**31 - 1, 10**6))] * random.choice((1, 2))
        count = 1
        for size in sizes:
            count *= size
        fields: dict[int, Field] = {
            0: int8(dtype),
            2: ScalarVector("i", sizes),
            3: bytes(range(len(sizes))),
            8: int8(random.choice((0, 1, 1))),
        }
        if not written and random.random() < 0.4 and count < 1000:
            data = bytes(random.choice((0, 1, 1, 2, 63, 128, 255)) for _ in range(count * _TYPES[dtype]))
            self.constants.append(Fields({0: data}))
            fields[5] = uint32(len(self.constants) - 1)
        else:
            fields[6] = Fields({0: uint32(1)})
        return self.add("O" if 6 in fields else "T", Fields({0: int8(5), 1: Fields(fields)}))

    def value(self, kind: str) -> int:
        """A value for an argument: one there is, or a new one."""
        random = self.random
        kind = random.choice("TOnibsIL-") if random.random() < 0.04 else kind
        known = self.by_kind.get(kind, []) + (self.by_kind.get("O", []) if kind == "T" else [])
        if known and random.random() < 0.6:
            return random.choice(known)
        match kind:
            case "T" | "O":
                return self.tensor(written=kind == "O")
            case "n" if random.random() < 0.5:
                return self.add("n", value_of(4, Scalar("d", random.choice(_NUMBERS))))
            case "n" | "i" | "d" | "r":
                value = random.randrange(-1, 20) if kind == "d" else random.choice(_INTEGERS)
                return self.add("i" if kind == "r" else kind, value_of(2, int64(value)))
            case "b":
                return self.add("b", value_of(3, int8(random.randrange(2))))
            case "s":
                return self.add("s", value_of(6, random.choice(_TEXTS)))
            case "I":
                items = [self.value("i") for _ in range(random.randrange(5))]
                return self.add("I", value_of(7, int64s(*items)))
            case "L":
                items = [self.value("T") for _ in range(random.randrange(4))]
                return self.add("L", value_of(10, int32s(*items)))
        return self.add("-", Fields({0: int8(1)}))


def random_program(random: Random) -> bytes:
    """A program of a few instructions; most are such as an exporter might write, some are not."""
    making = _Making(random)
    inputs = [making.tensor(written=True) for _ in range(random.randrange(1, 3))]
    if random.random() < 0.3:
        inputs.append(making.value("i"))
    names = random.sample(list(_OPERATORS), random.randrange(1, 6))
    calls: list[Fields] = []
    written: list[int] = []
    for _ in range(random.randrange(1, 8)):
        if random.random() < 0.8:
            index = random.randrange(len(names))
            kinds = _OPERATORS[names[index]]
            args = [making.value(kind) for kind in kinds]
            written += [arg for arg, kind in zip(args, kinds, strict=True) if kind in "Or"]
            calls.append(call_of(1, int32(index), int32s(*args, *args[-1:])))
            continue
        value = random.choice((*inputs, *written))
        match random.randrange(3):
            case 0:
                calls.append(call_of(3, int32(value), int32(making.value(random.choice("OiT")))))
            case 1:
                destination = random.choice((random.randrange(8), len(calls) + 1, 0))
                calls.append(call_of(4, int32(random.choice((value, making.value("b")))), int32(destination)))
            case 2:
                calls.append(call_of(5, int32(value)))
    outputs = random.sample(written, min(len(written), 2)) or inputs[:1]
    plan = plan_of(
        making.values,
        slot3=int32s(*inputs),
        slot4=int32s(*outputs),
        slot5=chain_of(*calls),
        slot6=[_operator(name) for name in names],
        slot8=int64s(0, 1 << 20),
    )
    return program_bytes([plan], {2: making.constants})


def _operator(name: str) -> Fields:
    base, _, overload = name.partition(".")
    return Fields({0: base, 1: overload})
