"""A convolution as dispatches: the choice of the kernel, and how its work is divided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pteron.families.convolution import uniform
from pteron.families.convolution.geometry import Geometry
from pteron.families.elementwise.activations import ACTIVATIONS
from pteron.families.elementwise.binary import apply_binary
from pteron.families.elementwise.unary import widened
from pteron.families.linear.product import Product
from pteron.ops import AnyInt, Dispatch, LiveShape, Operand, Scratch, Target, Weight, divides, typical
from pteron.ops.row_layout import WORKGROUP, folded, row_groups, row_layout, split
from pteron.ops.shapes import broadcast_strides
from pteron.ops.tile_table import MATRIX_TILES, TILES
from pteron.ops.tiles import MatrixTile, Tile, choose, factor_declarations, matrix_tiles, planes_of
from pteron.wgsl import Kernels

kernel = Kernels(__name__)

PIXELS_FEW = 8  # up to this many pixels, several invocations share one output
FILTERS_THIN = 8  # filters per group that are too few to fill a tile
WORKGROUPS_PLENTY = 528  # of convolution_tiled: several per processor of a large GPU
WORKGROUPS_ENOUGH = 132  # with slices: k is not split into parts;
WORKGROUPS_WANTED = 198  # with fewer, k is split into parts to reach this number

# Maximum of terms per invocation, within the loop limit of an adapter (Target.loop_max).
TILED_DEPTH_MAX = 16384
LANES_DEPTH_MAX = 4096
DEPTHWISE_TAPS_MAX = 4096

QUOTIENT_MAX = 1 << 20  # up to this number, convolution_tiled divides exactly
STEPS_LEAST = 2  # minimum of steps per slice and part

MATRIX_LEAST = 16  # filters, and pixels
MATRIX_TERMS_MIN = 32

_F32_MAX = 3.4028234663852886e38


def _pixels_each(pixels: AnyInt, most: int) -> int:
    """The most pixels an invocation may take of these without many invocations working beyond the last."""
    pixels = typical(pixels, WORKGROUP, 4)
    taken = {each: -(-pixels // (WORKGROUP * each)) * each for each in range(1, most + 1)}
    return max(each for each in taken if 8 * taken[each] <= 9 * min(taken.values()))


def _direct_quads_max(sizes: Geometry, wide: int, target: Target) -> AnyInt:
    """Maximum of quads of k per invocation of convolution_direct, from the loop count that it states."""
    if not target.loop_max:
        return max(1, sizes.depth)
    a_quad = 4 * (1 + wide) + -(-(1 + 3 * wide) // max(1, sizes.quads))
    return max(1, (target.loop_max - 1024) // a_quad)


LARGE, SMALL = TILES["convolution_tiled"]
SLICES = 4  # of the depth, which invocations share


def tile_for(sizes: Geometry) -> tuple[Tile, int]:
    """(tile, slices). Large tiles if there are plenty of them. Otherwise small tiles, so that more workgroups
    share the work; with slices if even these are few."""
    if _typical_count(LARGE, sizes) >= WORKGROUPS_PLENTY:
        return LARGE, 1
    is_sliced = _typical_count(SMALL, sizes) < WORKGROUPS_PLENTY and sizes.depth > SMALL.step * SLICES
    return SMALL, SLICES if is_sliced else 1


def _typical_count(tile: Tile, sizes: Geometry) -> AnyInt:
    """How many tiles there are at sizes by which kernels are chosen."""
    return sizes.groups * tile.count(sizes.filters, typical(sizes.pixels, 64, 4))


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of given sizes, its operands, factors of its input, and what follows it: an addend,
    bounds `low` and `high`, an activation."""

    sizes: Geometry
    x: Operand
    weight: Operand
    bias: Operand | None
    out: Operand
    low: float
    high: float
    addend: Operand | None = None
    factors: Operand | None = None  # of x, one for every plane [n, c]
    activation: str = "none"  # or a name in ACTIVATIONS

    def dispatches(self, target: Target) -> Iterator[Dispatch]:
        """The convolution by the kernel that suits its shape and the device."""
        if not self.out.numel:
            return
        if not self.x.numel:  # an empty input with enough padding: all sums are empty
            yield self._merge(Scratch(4), 0, 0)
            return
        yield from (self._on_cpu if target.is_cpu else self._on_gpu)(target)

    @property
    def _is_constant(self) -> bool:
        return isinstance(self.weight.buffer, Weight)

    @property
    def _is_depthwise(self) -> bool:
        return self._is_constant and self.sizes.channels == 1

    def _on_cpu(self, target: Target) -> Iterator[Dispatch]:
        sizes = self.sizes
        if self.factors is not None:
            yield from self._multiplied_first(target)
            return
        wide, copies = widened(self.x, target)
        if self._is_depthwise and (launches := uniform.depthwise(target, wide, self.weight, sizes)):
            yield from copies
            for arguments in launches:
                yield self._launch("convolution_depthwise_uniform", 1, sizes.depth, source=None, **arguments)
        elif self._is_depthwise and sizes.taps <= DEPTHWISE_TAPS_MAX:
            yield self._depthwise(target, pixels_max=4)
        elif self._is_product:
            yield from self._by_product(target)
        elif self._is_constant and (arrays := uniform.choose(target, wide, self.weight, sizes)):
            yield from copies
            yield from self._by_uniform_arrays(arrays, wide)
        else:
            yield from self._direct(target, wide=8, quads=2 if sizes.filter_quads > 1 else 1)

    def _on_gpu(self, target: Target) -> Iterator[Dispatch]:
        sizes = self.sizes
        outputs, layout = sizes.pixels * sizes.rows, {}
        if self._is_constant and sizes.pixels <= PIXELS_FEW:
            layout = row_layout(target, outputs, sizes.terms)
        by_lanes = bool(layout) and sizes.terms <= layout["LANES"] * LANES_DEPTH_MAX
        is_tiled = sizes.filters > FILTERS_THIN and sizes.depth <= 4 * QUOTIENT_MAX
        if self.factors is not None and (self._is_depthwise or by_lanes or not is_tiled):
            yield from self._multiplied_first(target)
        elif self._is_depthwise and sizes.taps <= DEPTHWISE_TAPS_MAX:
            is_large = sizes.pixels >= 512 and sizes.taps <= 9
            yield self._depthwise(target, pixels_max=2 if is_large else 1)
        elif by_lanes:
            groups = row_groups(target, layout, outputs)
            yield self._at_once("convolution_lanes", **layout, groups=groups)
        elif self._is_constant and (tiles := self._matrix_tiles(target)):
            yield from self._by_matrices(tiles, target)
        elif is_tiled:
            yield from self._tiled(target)
        else:  # a tile would be nearly empty
            yield from self._direct(target, wide=1, quads=1)

    def _multiplied_first(self, target: Target) -> Iterator[Dispatch]:
        """The factors of x in a launch of their own."""
        assert self.factors is not None
        product = self.x.scratch()
        yield from apply_binary("a * b", self.x, self.factors, product, target=target)
        yield from replace(self, x=product, factors=None).dispatches(target)

    def _depthwise(self, target: Target, pixels_max: int) -> Dispatch:
        """`pixels_max`: of an invocation."""
        sizes = self.sizes
        taps_y, taps_x = sizes.window.size
        wide = _pixels_each(sizes.pixels, pixels_max)
        groups = folded(target, -(-sizes.pixels // (WORKGROUP * wide)) * sizes.rows)
        return self._at_once("convolution_depthwise", WIDE=wide, TAPS_Y=taps_y, TAPS_X=taps_x, groups=groups)

    def _direct(self, target: Target, *, wide: int, quads: int) -> Iterator[Dispatch]:
        """Invocations that work alone, each with `wide` pixels and some quads of filters."""
        sizes = self.sizes
        parts, span = split(sizes.depth // 4, _direct_quads_max(sizes, wide, target))
        strips = sizes.groups * -(-sizes.filter_quads // quads) * -(-sizes.pixels // wide)
        layout = {"WIDE": wide, "QUADS": quads}
        yield from self._in_parts("convolution_direct", parts, 4 * span, **layout, threads=parts * strips)

    @property
    def _is_product(self) -> bool:
        """Whether it is a matrix product of images of one pixel, which is faster on software adapters."""
        sizes = self.sizes
        is_one = sizes.window.size == (1, 1) == sizes.plane == sizes.out_plane
        is_inside = sizes.window.padding == (0, 0)  # otherwise the window may lie on the padding
        is_whole = sizes.groups == 1 and not sizes.transposed
        is_unbounded = self.high > _F32_MAX and (self.low == 0.0 or self.low < -_F32_MAX)
        is_plain = self.activation == "none" or (self.addend is None and self.low != 0.0)
        return is_one and is_inside and is_whole and is_unbounded and is_plain

    def _by_product(self, target: Target) -> Iterator[Dispatch]:
        sizes, is_relu = self.sizes, self.low == 0.0
        made = self.out if self.addend is None else self.out.scratch()
        yield from Product(
            self.x.reshaped((sizes.batch, sizes.channels)),
            self.weight.reshaped((sizes.filters, sizes.channels)),
            made.reshaped((sizes.batch, sizes.filters)),
            rows=sizes.batch,
            columns=sizes.filters,
            depth=sizes.channels,
            b_row=1,
            b_column=sizes.channels,
            bias=self.bias,
            activation="relu" if is_relu and self.addend is None else self.activation,
        ).dispatches(target)
        if self.addend is not None:
            finished = "at_least(a + b, 0.0)" if is_relu else "a + b"
            yield from apply_binary(finished, made, self.addend, self.out)

    def _by_uniform_arrays(self, arrays: uniform.UniformConvolution, x: Operand) -> Iterator[Dispatch]:
        """A launch for every image, some of its channels and some filters; several parts are merged."""
        depth = self.sizes.depth
        sums = Scratch(arrays.parts * self.out.numel) if arrays.parts > 1 else None
        given = arrays.overrides | {"source": None}
        for launch in arrays.launches:
            arguments = arrays.arguments(x, self.weight, launch)
            yield self._launch("convolution_uniform", arrays.parts, depth, sums, **given, **arguments)
        if sums:
            yield self._merge(sums, arrays.parts, depth)

    def _matrix_tiles(self, target: Target) -> tuple[MatrixTile, ...]:
        """Tiles for matrix cores, if the device has them and the convolution is large enough."""
        sizes = self.sizes
        if not target.has_matrices or sizes.groups > 1 or sizes.depth > 4 * QUOTIENT_MAX:
            return ()
        is_large = sizes.filters >= MATRIX_LEAST and sizes.terms >= MATRIX_TERMS_MIN
        if not is_large or sizes.pixels < MATRIX_LEAST:
            return ()
        planes = planes_of(target, self.weight.storage), planes_of(target, self.x.storage)
        return matrix_tiles(MATRIX_TILES["convolution_matrix"], target, planes)

    def _by_matrices(self, tiles: tuple[MatrixTile, ...], target: Target) -> Iterator[Dispatch]:
        sizes = self.sizes
        tile, wanted = choose(tiles, target, sizes.filters, sizes.pixels, sizes.depth, 1)
        span = -(-sizes.depth // (wanted * tile.step)) * tile.step
        parts = -(-sizes.depth // span)
        height, width = sizes.out_plane
        yield from self._merged(
            "convolution_matrix",
            parts,
            span,
            **tile.declarations,
            **factor_declarations(self.x, self.weight),
            IS_WHOLE=sizes.depth % tile.step == 0,
            WHOLE_STEPS=4 * sizes.quads % tile.step == 0,
            WHOLE_QUADS=sizes.channels % 4 == 0,
            ALL_IMAGES=True,
            BY_QUADS=divides(4, height * width),
            weights=self._packed("convolution filters", sizes.filters * sizes.depth),
            factors=self.factors,
            pixels=sizes.pixels,
            groups=folded(target, parts * tile.count(sizes.filters, sizes.pixels)),
        )

    def _tiled(self, target: Target) -> Iterator[Dispatch]:
        sizes = self.sizes
        tile, slices = tile_for(sizes)
        steps = -(-sizes.depth // tile.step)
        chosen = _typical_count(tile, sizes)
        wanted = -(-WORKGROUPS_WANTED // chosen) if chosen < WORKGROUPS_ENOUGH else 1
        steps_max: AnyInt = -(-steps // max(1, min(wanted, steps // (STEPS_LEAST * slices))))
        if target.loop_max:
            steps_max = min(steps_max, slices * TILED_DEPTH_MAX // tile.step)
        parts, span = split(steps, max(1, steps_max))
        yield from self._in_parts(
            "convolution_tiled",
            parts,
            tile.step * span,
            TALL=tile.tall,
            COLUMNS=tile.across,
            SLICES=slices,
            WORKGROUP=tile.down * tile.across * slices,
            WHOLE_STEPS=sizes.quads % (tile.step // 4) == 0,
            WHOLE_QUADS=sizes.channels % 4 == 0,
            factors=self.factors,
            groups=folded(target, parts * sizes.groups * tile.count(sizes.filters, sizes.pixels)),
        )

    def _at_once(self, name: str, **arguments: Any) -> Dispatch:
        """A launch of a kernel that computes whole sums."""
        sizes = self.sizes
        weights = self._packed("convolution rows", sizes.rows * sizes.terms)
        return self._launch(name, 1, sizes.depth, weights=weights, **arguments)

    def _in_parts(self, name: str, parts: AnyInt, span: AnyInt, **arguments: Any) -> Iterator[Dispatch]:
        """The launch of a kernel that takes weights in quads."""
        count = self.sizes.groups * self.sizes.depth * 4 * self.sizes.filter_quads
        weights: Weight | Scratch
        if self._is_constant:
            weights = self._packed("convolution quads", count)
        else:
            weights = Scratch(count)
            yield self._pack(weights)
        yield from self._merged(name, parts, span, weights=weights, **arguments)

    def _merged(self, name: str, parts: AnyInt, span: AnyInt, **arguments: Any) -> Iterator[Dispatch]:
        """A launch that finishes its sums; or, if k is split into parts, one that writes theirs, and another
        that finishes them."""
        if parts == 1:
            yield self._launch(name, 1, span, **arguments)
            return
        sums = Scratch(parts * self.out.numel)
        yield self._launch(name, parts, span, sums, **arguments)
        yield self._merge(sums, parts, span)

    def _merge(self, sums: Scratch, parts: AnyInt, span: AnyInt) -> Dispatch:
        """A launch that finishes the sums of parts; four pixels at a time, if planes allow it."""
        height, width = self.sizes.out_plane
        by_quads = divides(4, height * width)
        threads = self.out.numel // 4 if by_quads else self.out.numel
        return self._launch(
            "convolution_merge", parts, span, source=None, sums=sums, BY_QUADS=by_quads, threads=threads
        )

    def _launch(
        self, name: str, parts: AnyInt, span: AnyInt, partial: Scratch | None = None, **arguments: Any
    ) -> Dispatch:
        """A launch that finishes its sums, or writes those of parts as they are."""
        ending: dict[str, Any] = {
            "out": self.out,
            "bias": self.bias,
            "addend": self.addend,
            "HAS_LOW": self.low >= -_F32_MAX,
            "HAS_HIGH": self.high <= _F32_MAX,
            "activation": ACTIVATIONS.get(self.activation),
        }
        taken: dict[str, Any] = {
            "source": self.x,
            "TRANSPOSED": self.sizes.transposed,
            **({"partial": partial} if partial else ending),
            **self.sizes.parameters,
            "parts": parts,
            "span": span,
            "low": self.low,
            "high": self.high,
            "addend_strides": self._addend_strides,
            **uniform.NO_ARRAYS,
        }
        return Dispatch(kernel(name), **{**taken, **arguments})

    def _packed(self, layout: str, count: AnyInt) -> Weight:
        storage = self.weight.storage
        sizes = self.sizes
        arguments = sizes.groups, int(sizes.transposed), sizes.quads, str(storage.numpy)
        return self.weight.packed(layout, *arguments, count=count, storage=storage)

    def _pack(self, packed: Scratch) -> Dispatch:
        """Packs weights that are not constant, on the device."""
        sizes = self.sizes
        inner = sizes.channels if sizes.transposed else sizes.filters
        return Dispatch(
            kernel("convolution_pack"),
            weight=self.weight,
            packed=packed,
            group_count=sizes.groups,
            filters=sizes.filters,
            filter_quads=sizes.filter_quads,
            channels=sizes.channels,
            quads=sizes.quads,
            taps=sizes.taps,
            group_stride=inner * self.weight.shape[1] * sizes.taps,
            filter_stride=sizes.taps if sizes.transposed else sizes.channels * sizes.taps,
            channel_stride=sizes.filters * sizes.taps if sizes.transposed else sizes.taps,
            threads=packed.count,
        )

    @property
    def _addend_strides(self) -> LiveShape:
        if self.addend is None:
            return 0, 0, 0, 0
        strides = broadcast_strides(self.addend.shape, self.out.shape)
        *front, last = strides
        return (*front, 0, last) if len(strides) == 3 else strides
