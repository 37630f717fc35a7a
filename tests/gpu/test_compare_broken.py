"""Kernels that compute something else are found at the right node, among the 60 of a language model."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broken_kernel import broken

import pteron
from pteron import Device
from pteron.passes import placement
from pteron.passes.rewrite import REWRITES_VARIABLE
from pteron.tools.compare import Comparison, Prompt, replay

pytest.importorskip("torch")

TOKENS = [5, 17, 99]
# By kernel: what is right and what is not, and the first node that shows it.
KERNELS: dict[str, tuple[tuple[str, str, str], int, str]] = {
    "norm": (
        ("norm", "/ f32(params.length) + params.eps", "/ f32(params.length - 1u) + params.eps"),
        8,
        "et_vk.rms_norm.default",
    ),
    "product": (
        (
            "q4_uniform",
            "sums[t][c] += scale[c] * part[t][c];",
            "sums[t][c] += 1.001 * scale[c] * part[t][c];",
        ),
        9,
        "et_vk.linear_q4gsw.default",
    ),
    "rope": (("rope", "-(x.y * a.y)", "x.y * a.y"), 15, "et_vk.apply_rotary_emb.default"),
    "attention": (
        ("attention_uniform", "exp(scores - most)", "exp2(scores - most)"),
        17,
        "sdpa_with_kv_cache.default",
    ),
    "sigmoid": (("unary", "= apply(T(x[i]))", "= apply(T(x[i]) + T(0.001))"), 25, "aten.sigmoid.default"),
    # Where there is one row: the last norm alone.
    "late norm": (
        (
            "norm",
            "(f32(x[base + k]) - center) * scale",
            "(f32(x[base + k]) - center) * select(scale, 2.0, params.rows == 1u)",
        ),
        58,
        "et_vk.rms_norm.default",
    ),
}


@pytest.fixture(autouse=True)
def _on_software(device: Device) -> None:
    if not device.target.is_cpu:
        pytest.skip("breaks the kernels that software adapters run")


def compared(models: Path, steps: int = 0, **options: Any) -> Comparison:
    return pteron.compare(models / "tiny_llama_q4.pte", Prompt(TOKENS, steps), **options)


def test_half_floats_that_are_held_in_32_bits(models: Path, device: Device) -> None:
    """A product that is a thousandth too large is within what half floats may be off, and not within what the
    floats may that this adapter has in their place."""
    if device.target.shader_f16:
        pytest.skip("this adapter has half floats")
    assert pteron.compare(models / "tiny_llama_q4_fp16.pte", Prompt(TOKENS)).is_right
    with broken(*KERNELS["product"][0]):
        report = pteron.compare(models / "tiny_llama_q4_fp16.pte", Prompt(TOKENS))
    assert report.first is not None
    assert "et_vk.linear_q4gsw.default" in report.first.operators


@pytest.mark.long(every=6)
@pytest.mark.parametrize("name", KERNELS)
def test_a_broken_kernel_is_found_at_its_node(name: str, models: Path) -> None:
    change, node, operator = KERNELS[name]
    with broken(*change):
        began = time.perf_counter()
        report = compared(models, each_node=True)
        took = time.perf_counter() - began
    assert report.nodes == 60
    assert report.first is not None
    assert (report.first.nodes, report.first.operators) == ((node,), (operator,))
    assert report.culprit == f"node {node} {operator}"
    others = {row.operators[0] for row in report.departures}
    assert others == {operator}, "nodes that read what is wrong are right themselves"
    assert not report.is_right
    assert took < 60


@pytest.mark.long(every=2)
@pytest.mark.rewrites
@pytest.mark.parametrize("name", ["norm", "attention"])
def test_the_culprit_is_found_among_fused_nodes(
    name: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewrites make one call of a whole block of attention."""
    monkeypatch.delenv(REWRITES_VARIABLE, raising=False)
    change, node, operator = KERNELS[name]
    with broken(*change):
        report = compared(models)
    assert report.first is not None
    assert node in report.first.nodes
    assert len(report.first.nodes) > 1
    assert report.culprit is not None
    assert report.culprit.startswith(f"node {node} {operator}, which also departs alone")


def test_what_is_right_is_not_found(models: Path) -> None:
    for each_node in (True, False):
        report = compared(models, steps=1, each_node=each_node)
        assert report.is_right
        assert report.first is None
        assert (report.checked, report.idle, dict(report.unchecked)) == (58, 2, {})


def test_memory_that_is_written_over_is_found(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One buffer for each memory object of the file, though views live longer here than there: every node is
    right, and some read what is no longer what it was."""

    def share(lifetimes: Iterable[Any]) -> tuple[dict[int, int], tuple[int, ...]]:
        largest = max(lifetime.bytes for lifetime in lifetimes)
        names = {each.tensor.id: str(each.tensor.memory) for each in lifetimes}
        index = {name: place for place, name in enumerate(sorted(set(names.values()), key=str))}
        return {id: index[name] for id, name in names.items()}, (largest,) * len(index)

    monkeypatch.setattr(placement, "_share", share)
    report = compared(models, each_node=True)
    assert report.first is not None
    assert report.first.reason == "its memory was overwritten after its node ran"


@pytest.mark.long(every=3)
@pytest.mark.parametrize(("name", "each_node"), [("norm", True), ("attention", True), ("product", False)])
def test_a_departure_is_saved_and_shown_again(
    name: str, each_node: bool, models: Path, tmp_path: Path
) -> None:
    change, _, _ = KERNELS[name]
    folder = tmp_path / "report"
    with broken(*change):
        report = compared(models, each_node=each_node, save_to=folder)
        again = replay(folder)
    assert report.saved == str(folder)
    assert any(output.errors.departs for output in again)
    assert all(output.is_same for output in again), list(map(str, again))
    mended = replay(folder)
    assert not any(output.errors.departs for output in mended), list(map(str, mended))
    departing = [output for output in again if output.errors.departs]
    for output in departing:
        assert "exceed the tolerance" in str(output)
    assert {path.name for path in folder.iterdir()} >= {"node.json", "replay.py"}
    inputs = [np.load(path) for path in folder.glob("value_*.npy")]
    assert all(array.size for array in inputs)
