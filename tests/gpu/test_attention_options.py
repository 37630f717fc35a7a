"""Attention with a window, a soft cap, sinks, ALiBi, values of another width, caches of another type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from arguments import Symbol, tensor, weight
from attention_cases import OPTIONED, RING, RING_WINDOW, OptionedAttention
from check import check_op, each, refuse_op
from int8_caches import int8_cache
from row_cases import ATTEND, PLACES, RowAttention

from pteron import Device
from pteron.families.attention import kernels
from pteron.families.attention.layouts import TILES
from pteron.ops import Target
from pteron.plan import Launch

pytestmark = pytest.mark.kernels

NAN = float("nan")
# Prefill, decode, decode, a chunk, decode, a chunk; then the last places of the cache.
DECODE = {"S": (5, 1, 1, 7, 1, 6, 2), "p": (0, 5, 6, 7, 14, 15, 21)}


@dataclass(frozen=True)
class Case:
    """The shapes and options of one attention. Caches begin as NaN, so that a key past the context shows."""

    heads: int = 4
    key_heads: int = 2
    width: int = 16
    value_width: int = 0  # 0: as wide as keys
    capacity: int = 23
    scale: float | None = None
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    slopes: bool = False
    cache: str | None = None
    columns: int = 0  # of the keys, which are the values

    @property
    def tolerance(self) -> float:
        """The rounding of f16 is not modelled, that of int8 is."""
        return 5e-3 if self.cache == "f16" else 2e-5

    @property
    def options(self) -> tuple[Any, ...]:
        sinks = weight(self.heads, low=-2, high=4) if self.sinks else None
        slopes = weight(self.heads, low=0, high=0.5) if self.slopes else None
        return self.scale, self.window, self.softcap, sinks, slopes, self.columns or None

    def new(self, steps: int | str) -> tuple[Any, ...]:
        """Queries, keys and values."""
        wide = self.value_width or self.width
        value = None if self.columns else tensor(1, steps, self.key_heads, wide)
        key = tensor(1, steps, self.key_heads, self.width)
        return tensor(1, steps, self.heads, self.width), key, value

    def caches(self, slots: int = 1, filled: Any = None) -> tuple[Any, ...]:
        """Caches of NaNs, or of numbers where `filled` says so, by position."""

        def cache(width: int) -> Any:
            values = np.random.default_rng(width).uniform(
                -3, 3, (slots, self.capacity, self.key_heads, width)
            )
            if filled is None:
                values[:] = NAN
            else:
                values[:, ~filled] = NAN
            return int8_cache(values) if self.cache == "int8" else weight(values=values, dtype=self.cache)

        return cache(self.width), None if self.columns else cache(self.value_width or self.width)

    def arguments(self, filled: Any = None) -> tuple[Any, ...]:
        return *self.new("S"), *self.caches(1, filled), Symbol("p"), *self.options

    def check(self, target: Target, live: Any = DECODE, filled: Any = None, **options: Any) -> None:
        options = {"tolerance": self.tolerance, **options}
        oracle = OptionedAttention()
        check_op(OPTIONED, *self.arguments(filled), oracle=oracle, live=live, target=target, **options)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 5},
    "window of one": {"window": 1},
    "window beyond the cache": {"window": 99},
    "soft cap": {"softcap": 1.5},
    "sinks": {"sinks": True},
    "ALiBi": {"slopes": True},
    "all": {"window": 6, "softcap": 20.0, "sinks": True, "slopes": True, "scale": 0.3},
    "narrow values": {"value_width": 8},
    "wide values": {"value_width": 20, "window": 7, "sinks": True},
    "odd values": {"value_width": 7, "window": 3, "sinks": True},
    "columns of keys": {"columns": 12, "sinks": True},
    "f16": {"cache": "f16"},
    "f16 with all": {"cache": "f16", "window": 6, "softcap": 20.0, "sinks": True, "slopes": True},
    "int8": {"cache": "int8"},
    "int8 with all": {"cache": "int8", "window": 6, "softcap": 20.0, "sinks": True, "slopes": True},
    "int8, wide values": {"cache": "int8", "width": 36, "value_width": 68},
    "int8, columns of keys": {"cache": "int8", "width": 72, "columns": 40},
}
HEADS = [(4, 2), (3, 3), (5, 1)]


@pytest.mark.long(every=45)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_prefill_and_decode(options: dict[str, Any], heads: tuple[int, int], anywhere: Target) -> None:
    Case(*heads, **options).check(anywhere)


@pytest.mark.long(every=25)
@pytest.mark.parametrize("head_width", [6, 64, 80, 96, 112, 128, 256])
def test_widths(head_width: int, anywhere: Target) -> None:
    Case(4, 1, head_width, window=6, softcap=30.0, sinks=True).check(anywhere)


@pytest.mark.long(every=9)
@pytest.mark.parametrize("head_width", [4, 20, 64, 80, 128, 256])
def test_widths_of_int8_caches(head_width: int, anywhere: Target) -> None:
    Case(4, 1, head_width, window=6, sinks=True, cache="int8").check(anywhere)


@pytest.mark.long(every=12)
@pytest.mark.parametrize(
    ("head_width", "value_width", "columns"), [(192, 128, 0), (576, 0, 512), (24, 44, 0)]
)
def test_latent_attention(head_width: int, value_width: int, columns: int, anywhere: Target) -> None:
    """The widths of DeepSeek's heads, apart and as columns of the latent keys."""
    Case(3, 1 if columns else 3, head_width, value_width, columns=columns).check(anywhere)


# Chunks of more queries than a tile holds, of fewer, of one tile; then steps: all cross the window's edge.
CHUNKS = {"S": (67, 9, 33, 32, 1, 1, 7), "p": (0, 67, 76, 109, 141, 142, 143)}


@pytest.mark.long(every=70)
@pytest.mark.parametrize("window", [1, 8, 31, 32, 33, 64, 100])
@pytest.mark.parametrize(("heads", "key_heads", "head_width"), [(4, 2, 16), (3, 3, 20), (5, 1, 6)])
def test_chunks_around_the_edge(
    window: int, heads: int, key_heads: int, head_width: int, anywhere: Target
) -> None:
    case = Case(
        heads, key_heads, head_width, capacity=150, window=window, softcap=9.0, sinks=True, slopes=True
    )
    case.check(anywhere, CHUNKS)


@pytest.mark.long(every=5)
@pytest.mark.parametrize(
    "options",
    [OPTIONS[name] for name in ("all", "wide values", "columns of keys", "f16", "int8, wide values")],
)
def test_chunks(options: dict[str, Any], anywhere: Target) -> None:
    Case(capacity=150, **options).check(anywhere, CHUNKS)


@each("window", [5, 64, 127, 128, 129, 200])
def test_positions_around_the_edge(window: int, target: Target) -> None:
    """A step before, at and after the position where the first key leaves the window."""
    positions = (window - 2, window - 1, window, window + 1, window + 2, window + 5)
    filled = np.arange(512) < window - 2
    case = Case(capacity=512, window=window, sinks=True)
    case.check(target, {"S": (1, 1, 1, 1, 3, 8), "p": positions}, filled)


@pytest.mark.long(every=9)
@pytest.mark.parametrize("steps", [1, 8, 40])
def test_keys_before_the_window_are_not_read(steps: int, anywhere: Target) -> None:
    """They are NaN: a product with one would show, even if its weight is zero."""
    filled = np.zeros(4200, bool)
    filled[4100 - 128 :] = True
    case = Case(capacity=4200, window=129)
    case.check(anywhere, {"S": (steps,), "p": (4100,)}, filled)


@pytest.mark.long(every=4)
def test_a_window_takes_as_long_at_any_position(anywhere: Target, launches: list[Launch]) -> None:
    """One plan for all positions past the window, with a grid of the window."""
    case = Case(capacity=4200, window=100)
    filled = np.ones(4200, bool)
    case.check(anywhere, {"S": (1,), "p": (128, 129, 700, 3000, 4199)}, filled, plans=1, tolerance=3e-5)
    groups = [launch.groups for launch in launches if launch.module.kernel.name != "copy"]
    case.check(anywhere, {"S": (1,), "p": (99,)}, filled)
    assert groups == [launch.groups for launch in launches if launch.module.kernel.name != "copy"]


@pytest.mark.long(every=3)
def test_long_contexts(anywhere: Target) -> None:
    """Splits of the context, merged with sinks, soft caps and slopes."""
    live = {"S": (1, 4, 1), "p": (2000, 2001, 2005)}
    Case(4, 1, 8, capacity=2100, softcap=4.0, sinks=True, slopes=True).check(
        anywhere, live, np.arange(2100) < 2000
    )
    Case(4, 1, 8, 12, capacity=2100, window=1500, sinks=True).check(anywhere, live, np.arange(2100) < 2000)


@pytest.mark.long(every=3)
def test_large_sinks_take_all(anywhere: Target) -> None:
    """The result is close to nothing, without an overflow."""

    def check(sink: float) -> None:
        sinks = weight(values=np.full(4, sink))
        case = Case(capacity=300)
        rest = (None, None, None, sinks, None, None)
        arguments = (*case.new("S"), *case.caches(), Symbol("p"), *rest)
        live = {"S": (200, 9, 1), "p": (0, 200, 209)}
        check_op(OPTIONED, *arguments, oracle=OptionedAttention(), live=live, target=anywhere)

    check(200.0)
    check(-200.0)


@pytest.mark.long(every=4)
def test_large_scores_with_a_cap(anywhere: Target) -> None:
    q, k, v = (
        tensor(1, "S", 2, 8, low=-90, high=90),
        tensor(1, "S", 2, 8, low=-90, high=90),
        tensor(1, "S", 2, 8),
    )
    caches = Case(2, 2, 8).caches()
    arguments = (q, k, v, *caches, Symbol("p"), None, None, 5.0, None, None, None)
    check_op(OPTIONED, *arguments, oracle=OptionedAttention(), live=DECODE, target=anywhere, tolerance=1e-4)


@pytest.mark.usefixtures("slots_of_any_size")
@pytest.mark.long(every=3)
def test_few_workgroups_and_little_memory(anywhere: Target) -> None:
    for narrow in (replace(anywhere, binding_bytes_max=8192), replace(anywhere, workgroups_max=40)):
        Case(8, 4, 8, capacity=150, window=40, sinks=True).check(narrow, CHUNKS)


@pytest.mark.long(every=4)
def test_heads_in_several_launches(anywhere: Target) -> None:
    """Each has its own sink and slope, whichever launch it is in."""
    for heads in (5, 10):
        case = Case(heads, 5, 8, sinks=True, slopes=True)
        case.check(replace(anywhere, workgroups_max=4), {"S": (1, 2, 1), "p": (0, 1, 3)})


@pytest.mark.long(every=6)
@pytest.mark.parametrize("tiles", TILES, ids=str)
def test_every_tile(tiles: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "TILES", (tiles,))
    target = replace(device.target, is_cpu=False, workgroup_bytes_max=1 << 16, subgroup_size=0)
    if tiles.bytes_needed(16, 24) > device.target.workgroup_bytes_max:
        pytest.skip("too little workgroup memory")
    Case(6, 2, 16, 24, capacity=150, window=35, softcap=9.0, sinks=True, slopes=True).check(target, CHUNKS)


# Rings --------------------------------------------------------------------------------------------

WINDOWED: dict[str, Any] = {**OPTIONS["all"], "window": RING_WINDOW}


@pytest.mark.long(every=16)
@pytest.mark.parametrize(
    "options",
    [
        WINDOWED,
        {"window": RING_WINDOW, "width": 6},
        {"window": RING_WINDOW, "value_width": 20, "cache": "f16"},
        {"window": RING_WINDOW, "width": 40, "cache": "int8"},
        {"window": RING_WINDOW, "columns": 12, "sinks": True},
    ],
    ids=str,
)
def test_rings(options: dict[str, Any], anywhere: Target) -> None:
    """Caches of 23 rows over 106 positions."""
    case = Case(**options)
    check_op(
        OPTIONED,
        *case.arguments(),
        oracle=OptionedAttention(120),
        live=RING,
        target=anywhere,
        tolerance=case.tolerance,
    )


@pytest.mark.long(every=12)
@pytest.mark.parametrize("window", [1, 31, 64])
def test_rings_of_tiles(window: int, anywhere: Target) -> None:
    """Chunks of more queries than a tile holds, over a ring that has just room for the longest."""
    case = Case(capacity=window + 66, window=window)
    live = {"S": (67, 9, 33, 67, 1, 67, 7), "p": (0, 67, 76, 109, 176, 177, 244)}
    check_op(OPTIONED, *case.arguments(), oracle=OptionedAttention(300), live=live, target=anywhere)


@pytest.mark.long(every=4)
def test_a_ring_has_one_plan_for_all_positions(anywhere: Target) -> None:
    """Past the window; before it, there may be another."""
    case = Case(window=RING_WINDOW)
    live = {"S": (1,), "p": tuple(range(60))}
    given = case.arguments()
    check_op(OPTIONED, *given, oracle=OptionedAttention(60), live=live, target=anywhere, plans=2)


@pytest.mark.long(every=6)
@pytest.mark.parametrize("cache", [None, "int8"])
def test_rows_in_rings(cache: str | None, anywhere: Target) -> None:
    case = Case(width=20, window=RING_WINDOW, sinks=True, slopes=True, cache=cache)
    places = tensor(values=[[70, 3], [0, 0], [22, 6], [-1, -1], [23, 2], [45, 5]], dtype="i32")
    given = (*case.new(6), *case.caches(7, np.ones(23, bool)), places, Symbol("c"), *case.options)
    live = {"c": (71, 99)}
    check_op(ATTEND, *given, oracle=RowAttention(99), live=live, target=anywhere, tolerance=2e-5)


# Of rows ------------------------------------------------------------------------------------------


@pytest.mark.long(every=43)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_rows(options: dict[str, Any], heads: tuple[int, int], anywhere: Target) -> None:
    case = Case(*heads, **options)
    filled = np.ones(case.capacity, bool)
    places = tensor(values=PLACES, dtype="i32")
    given = (*case.new(len(PLACES)), *case.caches(7, filled), places, Symbol("c"), *case.options)
    live = {"c": (23, 23)}
    check_op(ATTEND, *given, oracle=RowAttention(), live=live, target=anywhere, tolerance=case.tolerance)


@pytest.mark.long(every=4)
def test_rows_far_apart(anywhere: Target) -> None:
    """Positions before, at and after the window's edge, in one launch."""
    places = np.array([[1021, 1], [0, 2], [99, 0], [100, 3], [101, 4]], np.int32)
    case = Case(4, 2, 16, capacity=1024, window=100, sinks=True, slopes=True)
    given = (*case.new(5), *case.caches(5, np.ones(1024, bool)), tensor(values=places, dtype="i32"))
    live = {"c": (1022, 1024, 1023)}
    rest = (Symbol("c"), *case.options)
    check_op(
        ATTEND, *given, *rest, oracle=RowAttention(), live=live, target=anywhere, tolerance=2e-5, plans=1
    )


# Refusals -----------------------------------------------------------------------------------------


def test_refusals() -> None:
    case = Case(4, 2, 8)

    def refuse(match: str, *options: Any, new: Any = None, caches: Any = None, start: int = 0) -> None:
        given = (*(new or case.new(3)), *(caches or case.caches()), start, *(options or (None,) * 6))
        refuse_op(OPTIONED, *given, match=match, out=((1, 3, 4, 8),))

    refuse("a window of 0 keys", None, 0, None, None, None, None)
    refuse("a window of -3 keys", None, -3, None, None, None, None)
    refuse("a soft cap of 0", None, None, 0.0, None, None, None)
    refuse("a soft cap of nan", None, None, NAN, None, None, None)
    refuse("sinks must have a float for each of 4 heads", None, None, None, weight(3), None, None)
    refuse("slopes must have a float for each of 4 heads", None, None, None, None, weight(4, 1), None)
    refuse("exceed the cache's capacity 23", start=21)
    refuse("positions 21 to 24 exceed the cache's capacity 23", None, 22, None, None, None, None, start=21)
    refuse("values with a cache, or a width", None, None, None, None, None, 8)
    q, k, _ = case.new(3)
    keys, _ = case.caches()
    refuse("values with a cache, or a width", None, None, None, None, None, 8, new=(q, k, None))
    refuse("attention needs values or their width", new=(q, k, None), caches=(keys, None))
    refuse(
        "values with a cache, or a width",
        None,
        None,
        None,
        None,
        None,
        0,
        new=(q, k, None),
        caches=(keys, None),
    )
    refuse("one element type", caches=(keys, weight(1, 23, 2, 8, dtype="f16")))
    refuse("one element type", caches=(keys, weight(1, 23, 2, 3, dtype="i32")))
    words = [weight(1, 23, 2, 4, dtype="i32") for _ in range(2)]
    refuse("differ in their second dim only", caches=words)
    refuse("differ in their second dim only", new=(q, k, tensor(1, 3, 2, 4)))
    refuse("one shape", new=(q, k, tensor(1, 3, 1, 8)), caches=(keys, weight(1, 23, 1, 8)))
    refuse("one shape", caches=(keys, weight(1, 22, 2, 8)))
