"""What attention takes beside queries, keys and values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pteron.ops import AnyInt, Operand, require


@dataclass(frozen=True, slots=True)
class Options:
    """The scale of scores, and changes to the softmax that some families of language models make.

    A score is s = scale · q·k, then softcap · tanh(s / softcap), then plus slope · (position of the key -
    position of the query). A query sees the last `window` keys up to its own. A sink adds exp(sink) to the
    sum of a head's softmax.
    """

    scale: float | None = None  # None: 1 / √width
    window: int | None = None  # keys, the query's own included; None: all
    softcap: float | None = None
    sinks: Operand | None = None  # [heads]
    slopes: Operand | None = None  # [heads]: ALiBi
    is_safe: bool = False  # a query that sees no key has a result of zeros rather than of NaNs
    ring: int = 0  # rows of a cache of the last positions: position p is in row p % ring; 0: it has all

    def __post_init__(self) -> None:
        if self.window is not None:
            object.__setattr__(self, "window", int(self.window))  # kernels have it as a constant

    def within(self, capacity: AnyInt) -> Options:
        """The same for a cache of some rows. With a window of fewer, the cache may be a ring: it has all keys
        that a query sees. A window of at least as many is none, and there is a row for each position."""
        if self.window is None:
            return self
        return replace(self, window=None) if self.window >= capacity else replace(self, ring=int(capacity))

    @property
    def are_plain(self) -> bool:
        """Whether scores are scale · q·k, of all keys up to the query's own."""
        return self == Options(self.scale, sinks=self.sinks, is_safe=self.is_safe)

    def check(self, heads: AnyInt, *operands: Operand) -> None:
        """Check the options of attention with this number of query heads."""
        cap = self.softcap
        require(self.window is None or self.window >= 1, f"a window of {self.window} keys", *operands)
        require(cap is None or 1e-30 < cap < 1e30, f"a soft cap of {cap}", *operands)
        for name, each in (("sinks", self.sinks), ("slopes", self.slopes)):
            if each is not None:
                fits = each.shape == (heads,) and each.dtype.is_float
                require(fits, f"{name} must have a float for each of {heads} heads", each, *operands)

    def reach(self, context: AnyInt, steps: AnyInt) -> AnyInt:
        """The number of keys that a call of some steps sees, of all in its context."""
        if self.window is None or context <= self.window + steps - 1:
            return context
        return self.window + steps - 1

    def bound(self, keys: AnyInt, queries: int = 1) -> AnyInt:
        """The number of keys, at most, that some neighbouring queries of a head see."""
        return keys if self.window is None else min(keys, self.window + queries - 1)


PLAIN = Options()
