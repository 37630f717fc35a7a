"""softmax(scale · q·kᵀ + mask) · v with options (options.py), by kernels chosen by live shape and device.

For few queries, workgroups share the context in splits, which are merged; for many queries, tiles of the
context pass through workgroup memory. Software adapters bind them as uniform arrays (uniform.py).
Otherwise, and for widths that are not multiples of 4, scores and values are two plain products. If all keys
of a query are masked, by booleans or by -inf, its result is NaN, as in PyTorch; a finite mask never masks
all keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pteron.dtypes import Storage
from pteron.families.attention import uniform
from pteron.families.attention.call import AttentionCall
from pteron.families.attention.layouts import (
    MATRIX_TILES,
    SCRATCH_BYTES,
    TILES,
    Decode,
    MatrixTiles,
    Tiles,
    chunks_of,
    context_bucket,
)
from pteron.families.create.fill import fill
from pteron.ops import AnyInt, Dispatch, Scratch, Target, most, typical
from pteron.ops.row_layout import shared_rows
from pteron.ops.strided import source_of
from pteron.ops.tiles import planes_of
from pteron.wgsl import Kernel, Kernels, compose

kernel = Kernels(__name__)

MATRIX_ROWS_MIN = 16  # queries that share a key head: with fewer, most of a matrix is empty
LANES = 64  # keys that a workgroup scores at once
STEPS_FEW = 8  # up to this many steps, splits of the context are faster than tiles of queries
WORKGROUPS_BUSY = 256  # enough to keep a large device busy, if the longest start first
WORKGROUPS_EVEN = 768  # the same where all take equally long
SPLIT_LEAST = 128  # minimum of keys in a split
WORKGROUP_SOFTWARE = 16  # invocations: few, so that little work still spreads over a CPU's cores


@dataclass(frozen=True, slots=True)
class Attention(AttentionCall):
    """An attention call as dispatches."""

    def dispatches(self, target: Target) -> Iterator[Dispatch]:
        if self.places is None:
            self._check()
            if self._sizes(self.k.shape)[1] == 0:
                return iter([fill(source_of(self.out), 0)])  # a sum of nothing
        if self.q.numel == 0:
            return iter(())
        if target.is_cpu:
            suits = self._suits_uniform_arrays(target)
            return self._by_uniform_arrays(target) if suits else self._by_scores(target, WORKGROUP_SOFTWARE)
        if self._width % 4 or self._value_width % 4:
            return self._by_scores(target)
        if self._steps <= STEPS_FEW:
            layout = self._decoding(target)
            return self._by_decoding(layout, target) if layout else self._by_splits(target)
        tiles = self._tiles(target)
        return self._by_tiles(tiles) if tiles else self._by_scores(target)

    def in_splits(self, target: Target, splits_max: int) -> tuple[Dispatch, Scratch, AnyInt] | None:
        """On GPUs, (dispatch, its output, splits per query) for a caller that merges the splits itself: 2 to
        `splits_max` of them, in the layout of attention_merge.wgsl. None if other kernels are faster, or if
        one dispatch is not enough."""
        self._check()
        is_long = self.q.numel and self._sizes(self.k.shape)[1]
        is_fit = self._width % 4 == 0 and self._steps <= STEPS_FEW and self.options.sinks is None
        if not is_fit or not is_long:
            return None
        layout = self._decoding(target, are_merged=True)
        if layout is None or not 1 < layout.splits <= splits_max:
            return None
        first, *others = self._by_decoding(layout, target)
        parts = first.bindings["parts"]
        assert isinstance(parts, Scratch)
        return (first, parts, layout.splits) if len(others) == 1 else None

    def _suits_uniform_arrays(self, target: Target) -> bool:
        """Whether uniform.py takes its operands and options."""
        q, k, v, out = self._in_steps()
        is_plain = self.places is None and self.options.are_plain and self._value_width == self._width
        return is_plain and uniform.suits(q, k, v, out, self.context, target)

    def _by_uniform_arrays(self, target: Target) -> Iterator[Dispatch]:
        """Bind queries, keys and values as uniform arrays, then merge the splits of the context."""
        rows = []
        for x in self._in_steps()[:3]:
            row, copies = uniform.in_order(x, target)
            rows.append(row)
            yield from copies
        q, k, v = rows
        cut = uniform.UniformAttention.of(q, k, v, self.context, target)
        parts = Scratch(self._count * cut.splits * (self._width + 4)) if cut.splits > 1 else None
        strides = self._mask_strides()
        masks = cut.rows if strides[1] or strides[2] else 1
        for launch in cut.launches():
            yield Dispatch(
                kernel("attention_uniform"),
                **cut.declarations,
                **launch,
                **self._stored(parts),
                **self._masked(),
                CAUSAL=self.causal,
                MASKS=masks,
                context=self.context,
                start=self.start,
                scale=self._scale,
                first_query=0,
                queries=self._count,
                splits=cut.splits,
                steps=self._steps,
                heads=self._heads,
            )
        if parts:
            yield self._merge(parts, 0, self._count, cut.splits, cut.split)

    def _by_tiles(self, tiles: Tiles | MatrixTiles) -> Iterator[Dispatch]:
        """Process queries that share a key head together, in tiles of queries and of context."""
        across, down, batches = self._tiled(tiles)
        are_halves = all(each is Storage.F16 for each in self._storages[1:])
        checked = {"IS_CHECKED": not are_halves} if isinstance(tiles, MatrixTiles) else {}
        yield from self._leaving(
            tiles.splits,
            0,
            self._count,
            kernel(tiles.kernel, **self._tile_declarations(tiles), **checked),
            heads_per_key=self._heads_per_key,
            groups=(across, down, batches * tiles.splits),
        )

    def _decoding(self, target: Target, *, are_merged: bool = False) -> Decode | None:
        """The layout of `_by_decoding`; None if the device cannot run it."""
        width, chunks = max(self._width, self._value_width), -(-self._heads_per_key * self._steps // 4)
        workgroups = self._key_heads * self.q.shape[0] * chunks
        return Decode.of(width, self._reach, workgroups, target, are_merged=are_merged)

    def _by_decoding(self, layout: Decode, target: Target) -> Iterator[Dispatch]:
        """Process queries that share a key head together, four at a time, over splits of the context."""
        rows = self._heads_per_key * self._steps
        chunks = -(-rows // 4)
        floats = rows * layout.splits * (self._value_width + 4)
        for first, count in chunks_of(self._key_heads * self.q.shape[0], floats, target, chunks, multiple=1):
            yield from self._leaving(
                layout.splits,
                first * rows,
                count * rows,
                kernel("attention_decode", **layout.declarations),
                first=first * chunks,
                chunks=chunks,
                rows=rows,
                key_heads=self._key_heads,
                heads_per_key=self._heads_per_key,
                groups=(layout.splits, count * chunks, 1),
            )

    def _leaving(
        self, splits: AnyInt, first_query: AnyInt, queries: AnyInt, by: Kernel, **arguments: Any
    ) -> Iterator[Dispatch]:
        """One dispatch that writes the result of some queries; or one for the splits of their context, then
        one that merges them."""
        parts = Scratch(queries * splits * (self._value_width + 4)) if splits > 1 else None
        yield Dispatch(
            by,
            **self._queries(),
            **self._scored(),
            **self._valued(),
            **self._stored(parts),
            **arguments,
            first_query=first_query,
            queries=queries,
            splits=splits,
            heads=self._heads,
        )
        if parts:
            yield self._merge(parts, first_query, queries, splits, split=1)

    def _by_splits(self, target: Target) -> Iterator[Dispatch]:
        """One workgroup per split of the context. The grid covers a bucket of contexts, so that the plan
        holds while the context grows; workgroups past the end of the context return at once."""
        splits = -(-self.options.bound(self._keys) // LANES)
        for first, count in chunks_of(self._count, splits * (self._value_width + 4), target):
            parts = Scratch(count * splits * (self._value_width + 4))
            yield Dispatch(
                kernel("attention_split"),
                **shared_rows(target, LANES, 1),
                **self._queries(),
                **self._scored(),
                **self._valued(),
                parts=parts,
                first=first,
                splits=splits,
                heads=self._heads,
                heads_per_key=self._heads_per_key,
                groups=(splits, count, 1),
            )
            yield self._merge(parts, first, count, splits, split=1 if self.options.window else LANES)

    def _merge(
        self, parts: Scratch, first: AnyInt, queries: AnyInt, splits: AnyInt, split: AnyInt
    ) -> Dispatch:
        """Merge the splits of some queries, each of at least `split` keys."""
        return Dispatch(
            kernel("attention_merge"),
            **self._contexts(),
            **self._result(),
            VALUE_WIDTH=self._value_width,
            parts=parts,
            count=queries * self._value_width,
            first=first,
            splits=splits,
            split=split,
            context=self.context,
            steps=self._steps,
            heads=self._heads,
            threads=queries * self._value_width,
        )

    def _by_scores(self, target: Target, workgroup: int = LANES) -> Iterator[Dispatch]:
        """Compute all scores, four queries by four keys per invocation, then the weighted values. A slot is
        the scores of one query; the slots of a key head are padded to a multiple of four. The grid covers a
        bucket of contexts."""
        pitch = -(-self._heads_per_key * self._steps // 4) * 4
        slots = pitch * self._key_heads * self.q.shape[0]
        keys = -(-self.options.bound(self._keys, 4) // 4) * 4
        for first, count in chunks_of(slots, keys, target):
            common: dict[str, Any] = {
                **self._queries(),
                "WORKGROUP": workgroup,
                "scores": Scratch(count * keys),
                "first": first,
                "slots": count,
                "pitch": pitch,
                "keys": keys,
                "key_heads": self._key_heads,
                "heads_per_key": self._heads_per_key,
            }
            yield Dispatch(
                kernel("attention_scores"),
                **common,
                **self._scored(),
                threads=count // 4 * (keys // 4),
            )
            yield Dispatch(
                kernel("attention_values"),
                **common,
                **self._valued(),
                **self._result(),
                threads=count // 4 * -(-self._value_width // 4),
            )

    def _tiles(self, target: Target) -> Tiles | MatrixTiles | None:
        """The largest tiles that the device allows, of matrices if it has them; smaller ones, and splits of
        the context, if there would be too few to keep it busy."""
        choices: list[Tiles | MatrixTiles] = [*self._matrix_tiles(target), *TILES]
        tiles = next((tiles for tiles in choices if self._fits(tiles, target)), None)
        if tiles is None:
            return None
        few = self._typical_count(tiles) < WORKGROUPS_BUSY // 2
        if few and tiles.rows > 32 and self._fits(tiles.halved(), target):
            tiles = tiles.halved()
        busy = WORKGROUPS_BUSY if self.causal else WORKGROUPS_EVEN
        splits = busy // self._typical_count(tiles)
        if splits > 1:
            floats = most(self._count) * (self._value_width + 4)
            splits = min(
                splits,
                min(context_bucket(self._reach), most(self._sizes(self.k.shape)[1])) // SPLIT_LEAST,
                min(SCRATCH_BYTES, target.binding_bytes_max) // (4 * floats),
                target.workgroups_max // most(self.q.shape[0]),
            )
        return tiles.on(target, max(1, splits))

    @property
    def _storages(self) -> list[Storage]:
        """Of queries, keys and values."""
        return [source_of(each).storage for each in (self.q, self.k, self.v)]

    def _matrix_tiles(self, target: Target) -> list[MatrixTiles]:
        """Tiles for matrix cores, if the device has them and the widths are those of whole matrices."""
        if not target.has_matrices or self._width % 16 or self._value_width % 16:
            return []
        if self._steps * self._heads_per_key < MATRIX_ROWS_MIN:
            return []
        queries, *cached = (planes_of(target, each) for each in self._storages)
        planes = max(queries, *cached), max(cached)
        if planes[0] == 2 and source_of(self.out).storage is not Storage.F32:
            return []  # results are added up in the output's memory
        return [
            replace(tiles, bytes_of_half=target.bytes_of_half)
            for tiles in MATRIX_TILES
            if (tiles.planes, tiles.key_planes) == planes
            and tiles.suits(self._width, self._value_width)
            and (tiles.context_max is None or self._keys <= tiles.context_max)
        ]

    def _tile_declarations(self, tiles: Tiles | MatrixTiles) -> dict[str, Any]:
        return tiles.declarations(self._width, self._value_width)

    def _fits(self, tiles: Tiles | MatrixTiles, target: Target) -> bool:
        """Whether a device has the workgroups, memory and loops for tiles."""
        widths = {"WIDTH": self._width, "VALUE_WIDTH": self._value_width}
        module = compose(kernel(tiles.kernel, **widths, **self._tile_declarations(tiles)))
        assert module.statements.loops is not None
        loops = module.statements.loops.value({"context": self._keys, "splits": 1})
        return (
            tiles.bytes_needed(self._width, self._value_width) <= target.workgroup_bytes_max
            and tiles.workgroup <= target.invocations_max
            and all(count <= target.workgroups_max for count in self._tiled(tiles))
            and not 0 < target.loop_max < loops
        )

    def _tiled(self, tiles: Tiles | MatrixTiles) -> tuple[AnyInt, AnyInt, AnyInt]:
        """The number of key heads, of tiles of queries per key head, and of batches."""
        return self._key_heads, -(-self._steps * self._heads_per_key // tiles.rows), self.q.shape[0]

    def _typical_count(self, tiles: Tiles | MatrixTiles) -> AnyInt:
        """How many tiles there are at sizes by which kernels are chosen. Batch and steps count together, as
        rows of matrix products do, so that few plans suit all of both."""
        queries = typical(self.q.shape[0] * self._steps) * self._heads_per_key
        return self._key_heads * -(-queries // tiles.rows)
