"""Operators that exporters take out: some work all the same, the others are refused with a reason."""

from __future__ import annotations

import pytest
from sketch import Sketch

from pteron.errors import UnsupportedError
from pteron.families.exporter_removed import REMOVED_BY_EXPORTER, explained
from pteron.passes import is_available

REFUSED = ["_assert_scalar.default", "getitem", "sym_constrain_range_for_size.default"]


def test_those_that_work() -> None:
    assert sorted(name for name in REMOVED_BY_EXPORTER if not is_available(name)) == REFUSED


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_tells_why(name: str) -> None:
    sketch = Sketch()
    x = sketch.tensor(3)
    sketch.node(name, x, 0, x)
    with pytest.raises(UnsupportedError) as caught:
        sketch.prepare([x], [x])
    reason = f"{name} (no file should contain it: {REMOVED_BY_EXPORTER[name]}) (1x)"
    assert str(caught.value) == f"sketch: unsupported operators: {reason}"
    assert explained("aten.relu.default") == "aten.relu.default"
