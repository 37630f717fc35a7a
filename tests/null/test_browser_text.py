"""The text of a kernel for browsers differs from that for wgpu by one line, where subgroups are used."""

from __future__ import annotations

from kernel_files import kernel

from pteron.wgsl import compose


def test_subgroups_are_enabled_where_they_are_used() -> None:
    module = compose(kernel("softmax", use_rows="rows_subgroup", LANES=32, ROWS=2))
    assert module.portable_source == "enable subgroups;\n" + module.source
    assert "enable subgroups" not in module.source


def test_half_floats_and_subgroups() -> None:
    module = compose(kernel("softmax", use_rows="rows_subgroup", LANES=32, ROWS=2, X="f16"))
    assert module.portable_source.startswith("enable subgroups;\nenable f16;\n")


def test_other_kernels_are_as_they_are() -> None:
    for module in (compose(kernel("softmax")), compose(kernel("unary", X="f16"))):
        assert module.portable_source == module.source
