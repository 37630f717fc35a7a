"""Network: the nodes of a decoder, as ExecuTorch's exporter writes them; parts of architectures call it.

A weight is named by its place, such as `layers.0.attention.wq`; its tensors are `<place>.weight` and, if the
checkpoint has one, `<place>.bias`. Hidden states are [1, tokens, dim].
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from pteron.dtypes import DType
from pteron.errors import FormatError
from pteron.format.program_writer import StreamedData
from pteron.format.stored_tensor import StoredTensor, stacked
from pteron.llm.network.graph import (
    BODY,
    CONSTANTS,
    INPUTS,
    POSITIONS,
    Argument,
    GraphBuilder,
    LiveInt,
    Size,
    Tensor,
)
from pteron.llm.network.matrices import QuantizedMatrices
from pteron.llm.network.options import FOUR_BITS, IN_GROUPS, Options
from pteron.llm.network.weights import aligned, float_data, to_float

T = TypeVar("T")


class MissingWeightError(FormatError):
    """The checkpoint has no tensor for a place, such as `layers.0.attention.wq.weight`."""

    def __init__(self, place: str) -> None:
        super().__init__(f"the checkpoint has no weight for {place}")
        self.place = place


class Network:
    def __init__(self, weights: Mapping[str, StoredTensor], options: Options) -> None:
        self.options, self.graph = options, GraphBuilder()
        self.dtype = DType.F16 if options.force_fp16 else DType.F32
        self.unused = dict(weights)  # weights that no node reads yet
        self._weights = dict(weights)
        self._matrices = QuantizedMatrices(self.graph, self._weights, options, self.dtype)
        self._shared: dict[Hashable, object] = {}
        self.longest = options.longest_context or options.max_context_len  # that may be chosen at load
        self.longest_rebuilt = self.longest  # of another program, built for a longer context
        self._add_inputs()

    def _add_inputs(self) -> None:
        options = self.options
        self.token_ids = self.graph.input(DType.I32, (1, options.max_seq_len))
        self.positions = self.graph.input(DType.I32, (1,))
        self.tokens: LiveInt = self.graph.live("sym_size.int", self.token_ids, 1, max=options.max_seq_len)

    @property
    def context(self) -> int:
        """The tokens that a KV cache holds, if no other number is chosen at load."""
        return self.options.max_context_len

    def limit_context(self, tokens: int, *, is_of_program: bool = False) -> None:
        """Let no longer context than this be chosen at load. If the limit is that of the program, another
        one may be built for longer contexts."""
        self.longest = min(self.longest, tokens)
        if not is_of_program:
            self.longest_rebuilt = min(self.longest_rebuilt, tokens)

    @cached_property
    def start(self) -> LiveInt:
        """The position of the first token of a call."""
        return self.graph.live("et_vk.select_as_symint.default", self.positions, 0, 0, section=BODY)

    @cached_property
    def rotary_start(self) -> LiveInt:
        """The same, for rotary embeddings: the exporter reads it twice."""
        return self.graph.live("et_vk.select_as_symint.default", self.positions, 0, -1, section=POSITIONS)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned when it was first called with this key: parts share tables by it."""
        if key not in self._shared:
            self._shared[key] = make()
        return cast(T, self._shared[key])

    # Weights -------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        return name in self._weights

    def weight(self, name: str) -> StoredTensor:
        """A tensor of the checkpoint, by place and kind: `layers.0.attention.wq.weight`."""
        if name not in self._weights:
            raise MissingWeightError(name)
        self.unused.pop(name, None)
        return self._weights[name]

    def _require(self, name: str, shape: tuple[int, ...]) -> None:
        """Check a weight's shape."""
        found = self._weights[name].shape
        if found != shape:
            raise FormatError(f"{name} is {list(found)}, but the configuration requires {list(shape)}")

    def float_constant(self, name: str) -> Tensor:
        """A tensor of the checkpoint as floats."""
        tensor = self.weight(name)
        key, data = self._matrices.key(name), float_data(tensor, self.dtype)
        return self.graph.constant(key, self.dtype, tensor.shape, data)

    def computed(self, values: npt.NDArray[np.float32]) -> Tensor:
        """A constant that is not in the checkpoint; equal ones share their data."""
        array = to_float(values, self.dtype)
        key = f"computed.{hashlib.sha256(array.tobytes()).hexdigest()[:32]}"
        data = StreamedData(array.nbytes, lambda: [array])
        return self.graph.constant(key, self.dtype, array.shape, data)

    def prepacked(self, constant: Tensor) -> Tensor:
        """A constant for operators that read it as any other tensor."""
        return self.graph.call("et_vk.prepack.default", constant, out=constant.sizes, section=CONSTANTS)

    def state(self, shape: Sequence[int], dtype: DType | None = None) -> Tensor:
        """A tensor of zeros that operators write and that keeps its content between calls."""
        dtype = dtype or self.dtype
        size = prod(shape) * dtype.itemsize
        return self.graph.constant(f"zeros.{size}", dtype, shape, StreamedData(size))

    # Nodes ---------------------------------------------------------------------------------------

    def view(self, x: Tensor, *sizes: Size) -> Tensor:
        return self.graph.call("aten.view_copy.default", x, sizes, out=sizes)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self.graph.call("aten.add.Tensor", a, b, 1, out=a.sizes)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        return self.graph.call("aten.mul.Tensor", a, b, out=a.sizes)

    def unary(self, name: str, x: Tensor, *args: float | str) -> Tensor:
        return self.graph.call(name, x, *args, out=x.sizes)

    def scaled(self, x: Tensor, factor: float) -> Tensor:
        """x * factor, as the exporter writes it: with a prepacked constant."""
        if factor == 1.0:
            return x
        number = self.once(
            ("number", factor), lambda: self.prepacked(self.computed(np.array(factor, np.float32)))
        )
        return self.multiply(x, number)

    def rms_norm(self, x: Tensor, place: str, eps: float) -> Tensor:
        # The exporter stores epsilon as f32.
        weight = self.float_constant(f"{place}.weight")
        self._require(f"{place}.weight", x.shape[-1:])
        return self.graph.call("et_vk.rms_norm.default", x, weight, float(np.float32(eps)), out=x.sizes)

    def layer_norm(self, x: Tensor, place: str, eps: float, *, has_weight: bool = True) -> Tensor:
        """A norm with a weight, unless it has none, and the bias that the checkpoint has."""
        width, rest = x.shape[-1:], (*x.sizes[:-1], 1)
        weights: list[Tensor | None] = []
        for name, is_there in ((f"{place}.weight", has_weight), (f"{place}.bias", self.has(f"{place}.bias"))):
            weights.append(self.float_constant(name) if is_there else None)
            if is_there:
                self._require(name, width)
        normed, _, _ = self.graph.call_many(
            "aten.native_layer_norm.default",
            *(x, width, *weights, eps),
            out=[(self.dtype, x.sizes), (self.dtype, rest), (self.dtype, rest)],
        )
        return normed

    def embedding(self, place: str) -> Tensor:
        """The rows of a table for the tokens of a call."""
        tensor = self.weight(f"{place}.weight")
        options, sizes = self.options, (1, self.tokens, tensor.shape[1])
        bits = options.embedding_bits
        if bits is None or (bits == 8 and self._matrices.stays_float(tensor)):
            table = self.float_constant(f"{place}.weight")
            arguments = (table, self.token_ids, -1, False, False)
            return self.graph.call("aten.embedding.default", *arguments, out=sizes, section=INPUTS)
        if bits == 8:
            factors = (*self._matrices.in_groups(f"{place}.weight", tensor), self.token_ids)
            return self.graph.call(
                "pteron.embedding_q8gsw.default", *factors, out=sizes, dtype=self.dtype, section=INPUTS
            )
        table_4 = self._matrices.table_4_bits(place, tensor)
        arguments_4 = (*table_4, options.group_size, self.token_ids, True)
        return self.graph.call(
            "et_vk.embedding_q4gsw.default", *arguments_4, out=sizes, dtype=self.dtype, section=INPUTS
        )

    def linear(self, x: Tensor, place: str, *heads: int) -> Tensor:
        """x times a matrix, plus its bias. With `heads` (heads, width) the last dimension is split."""
        matrix = self.weight(f"{place}.weight")
        leading = x.sizes[:1] if len(x.sizes) == 2 else x.sizes[:2]
        rows, columns = prod(heads) if heads else matrix.rows, prod(x.shape[len(leading) :])
        self._require(f"{place}.weight", (rows, columns))
        if self.has(f"{place}.bias"):
            self._require(f"{place}.bias", (rows,))
        quantize = self._matrices.quantization_of(matrix)
        if quantize in (*FOUR_BITS, IN_GROUPS):
            flat = x if x.sizes == (*leading, columns) else self.view(x, *leading, columns)
            in_groups = quantize == IN_GROUPS
            y = (self._linear_in_groups if in_groups else self._linear_4_bits)(flat, place, matrix)
        else:
            flat = x if len(x.sizes) == 2 else self.view(x, leading[-1], columns)
            y = self._linear_by_rows(flat, place, matrix)
        # The exporter keeps views that change nothing, but for 8-bit activations.
        is_same = not heads and quantize in ("8da4w", IN_GROUPS)
        return y if is_same or len(x.sizes) == 2 else self.view(y, *leading, *(heads or (rows,)))

    def float_linear(self, x: Tensor, place: str, rows: int) -> Tensor:
        """x [tokens, columns] times a matrix that is never quantised, such as that of a router."""
        weight = self.float_constant(f"{place}.weight")
        self._require(f"{place}.weight", (rows, x.shape[-1]))
        bias = self.float_constant(f"{place}.bias") if self.has(f"{place}.bias") else None
        return self.graph.call("aten.linear.default", x, weight, bias, out=(x.sizes[0], rows))

    def experts_linear(self, x: Tensor, experts: Tensor | None, place: str, count: int) -> Tensor:
        """The products of x [tokens, columns] or [tokens, k, columns] with the matrices of chosen experts
        [tokens, k]; without `experts`, of x[:, j] with matrix j. Matrices are `<place>.weight`, one after the
        other, or `<place>` with `{}` for the number of each."""
        matrix = self._expert_matrices(place, count)
        place = place.replace(".{}", "")
        rows = matrix.rows // count
        self._require(f"{place}.weight", (count * rows, x.shape[-1]))
        sizes = (*(experts or x).sizes[:2], rows)
        quantize = self._matrices.quantization_of(matrix)
        if quantize is None:
            weights: tuple[Argument, ...] = (self.float_constant(f"{place}.weight"),)
            name = "linear"
        elif quantize == IN_GROUPS:
            name, weights = "q8gsw", self._matrices.in_groups(f"{place}.weight", matrix)
        elif quantize in FOUR_BITS:
            name, weights = "q4gsw", (*self._matrices.in_4_bits(place, matrix), self.options.group_size)
        else:
            name, weights = "int8", self._matrices.in_8_bits(place, matrix)
        y = self.graph.call(f"pteron.experts_{name}.default", x, experts, *weights, count, out=sizes)
        if not self.has(f"{place}.bias"):
            return y
        self._require(f"{place}.bias", (count, rows))
        bias = self.float_constant(f"{place}.bias")
        arguments = (bias, experts, -1, False, False)
        return self.add(y, self.graph.call("aten.embedding.default", *arguments, out=sizes))

    def _expert_matrices(self, place: str, count: int) -> StoredTensor:
        """The matrices of all experts as one, which is a weight from now on."""
        name = f"{place.replace('.{}', '')}.weight"
        if "{}" in place and not self.has(name):
            each = [self.weight(f"{place.format(index)}.weight") for index in range(count)]
            if len({tensor.shape for tensor in each}) > 1 or len(each[0].shape) != 2:
                raise FormatError(f"{name}: the experts' matrices have different shapes")
            self._weights[name] = stacked(each)
        return self.weight(name)

    def _linear_by_rows(self, x: Tensor, place: str, matrix: StoredTensor) -> Tensor:
        """Float or 8-bit weights; x is [tokens, columns]."""
        name, rows = f"{place}.weight", matrix.rows
        bias = self.float_constant(f"{place}.bias") if self.has(f"{place}.bias") else None
        sizes = (x.sizes[0], rows)
        if self._matrices.quantization_of(matrix) is None:
            weight = self.float_constant(name)
            return self.graph.call("aten.linear.default", x, weight, bias, out=sizes)
        integers, scales = self._matrices.in_8_bits(place, matrix)
        y = self.graph.call("aten._weight_int8pack_mm.default", x, integers, scales, out=sizes)
        return y if bias is None else self.add(y, self.prepacked(bias))

    def _linear_in_groups(self, x: Tensor, place: str, matrix: StoredTensor) -> Tensor:
        bias = self.float_constant(f"{place}.bias") if self.has(f"{place}.bias") else None
        factors = (*self._matrices.in_groups(f"{place}.weight", matrix), bias)
        return self.graph.call("pteron.linear_q8gsw.default", x, *factors, out=(*x.sizes[:-1], matrix.rows))

    def _linear_4_bits(self, x: Tensor, place: str, matrix: StoredTensor) -> Tensor:
        options, group = self.options, self.options.group_size
        integers, scales = self._matrices.in_4_bits(place, matrix)
        bias = self._padded_bias(place) if self.has(f"{place}.bias") else None
        sizes = (*x.sizes[:-1], matrix.rows)
        if options.quantize == "4w":
            arguments = (x, integers, scales, group, bias)
            return self.graph.call("et_vk.linear_q4gsw.default", *arguments, out=sizes)
        weights = (integers, self._matrices.sums_4_bits(place, matrix), scales, group, bias)
        step, zero = self._activation_scales(x)
        return self.graph.call("et_vk.linear_dq8ca_q4gsw.default", x, step, zero, *weights, out=sizes)

    def _activation_scales(self, x: Tensor) -> tuple[Tensor, ...]:
        """Scale and zero point of each row of activations."""
        block = (1,) * (len(x.sizes) - 1) + (x.shape[-1],)
        return self.graph.call_many(
            "torchao.choose_qparams_affine.default",
            *(x, "ASYMMETRIC", block, None, -128, 127, None, None, None, False),
            out=[(DType.F32, x.sizes[:-1]), (DType.I8, x.sizes[:-1])],
        )

    def _padded_bias(self, place: str) -> Tensor:
        values = self.weight(f"{place}.bias").read()
        return self.computed(np.pad(values, (0, aligned(len(values), 4) - len(values))))


class ImageNetwork(Network):
    """The nodes of a vision encoder, which has no tokens and positions. Its matrices are floats or, beside a
    quantised language model, have 8 bits: they are small, and its errors add up over many layers."""

    def __init__(self, weights: Mapping[str, StoredTensor], options: Options) -> None:
        quantize = None if options.quantize is None else "8w"
        super().__init__(weights, replace(options, quantize=quantize, embedding_bits=None))

    def _add_inputs(self) -> None:
        """Its encoder adds them."""
