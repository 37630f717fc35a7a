"""The player checks kernels on the visitor's adapter, and does not run a variant that gives wrong numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from site_fixtures import SitePage

from pteron.web import export_web

Open = Callable[..., SitePage]
# On the first devices that the page opens, no kernel runs.
BREAK = """
let devices = 0;
const request = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = function (...given) { devices++; return request.apply(this, given); };
const dispatch = GPUComputePassEncoder.prototype.dispatchWorkgroups;
GPUComputePassEncoder.prototype.dispatchWorkgroups = function (...given) {
    if (devices > BROKEN) dispatch.apply(this, given);
};
"""
LOAD = (
    "const program = await load({ worker: false, ...argument });"
    "const { variant, checks, notes } = await program.report();"
    "return [variant, checks.length, Math.max(...checks.map((each) => each.error)), notes];"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Path:
    folder = tmp_path_factory.mktemp("mlp_dynamic")
    # One row: SwiftShader takes long to compile the hardware route's kernels for more.
    export_web(
        programs / "mlp_dynamic.pte", folder, variants=["hardware", "software"], shapes=[{"input_0": (1, 7)}]
    )
    return folder


@pytest.mark.parametrize("variant", ["software", "hardware"])
def test_right_kernels_pass(site: Path, open_site: Open, variant: str) -> None:
    name, count, error, notes = open_site(site).run(LOAD, {"variant": variant})
    assert name == variant
    assert count == 3
    assert error < 0.1
    assert notes == []


def test_a_wrong_variant_is_replaced(site: Path, open_site: Open) -> None:
    page = open_site(site, init=BREAK.replace("BROKEN", "1"))
    name, _, error, notes = page.run(LOAD)
    assert name == "hardware"
    assert error < 0.1
    assert len(notes) == 1
    assert notes[0].startswith("The kernels of the variant software give wrong numbers on this adapter (")
    # The second visit knows it already.
    again = page.run(LOAD)
    assert again[0] == "hardware"
    assert page.run(LOAD, {"check": "never", "variant": "software"})[0] == "software"


def test_wrong_numbers_everywhere_are_an_error(site: Path, open_site: Open) -> None:
    page = open_site(site, init=BREAK.replace("BROKEN", "9"))
    error = page.run("return failing(() => load({ worker: false }));")
    assert error.startswith("wrong: google swiftshader computes wrong numbers (software: ")
    assert error.endswith("so the model is not run here. Try another browser, or a newer driver.")


def test_both_sides_compute_the_same_inputs(site: Path, open_site: Open) -> None:
    """As `hashed` in player/check.ts."""
    from pteron.tools.doctor.drawing import hashed

    found = open_site(site).run(
        "return Array.from({ length: 70000 }, (_, at) => (Math.imul(at, 2654435761) >>> 8) / 2 ** 23 - 1);"
    )
    np.testing.assert_array_equal(found, hashed(70000, 0))
