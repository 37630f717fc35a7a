"""Programs in a browser: outputs are those of Python, at several live shapes, with states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_fixtures import SitePage

import pteron

Open = Callable[..., SitePage]


def given(method: pteron.Method, case: int, golden: Any) -> dict[str, Any]:
    """The inputs of a golden case by name, as JavaScript takes them."""
    found = {}
    for place, spec in enumerate(method.inputs):
        array = golden[f"case{case}_input{place}"]
        data = array.reshape(-1).astype(np.float64).tolist()
        found[spec.name] = {"data": data, "shape": list(array.shape)}
    return found


@pytest.mark.parametrize(
    ("variant", "picked"),
    # SwiftShader takes 11 s to compile the kernel of tiles, for several rows on a GPU: it is 40 KB of WGSL.
    [("software", range(8)), ("hardware", [1, 4])],
)
def test_outputs_at_several_live_shapes(
    programs: Path, tmp_path: Path, open_site: Open, variant: str, picked: list[int]
) -> None:
    method = pteron.load(programs / "mlp_dynamic.pte")["forward"]
    golden = np.load(programs / "mlp_dynamic.npz")
    shapes = [{"input_0": golden[f"case{case}_input0"].shape} for case in picked]
    pteron.export_web(programs / "mlp_dynamic.pte", tmp_path, shapes=shapes, variants=[variant])
    cases = [given(method, case, golden) for case in picked]
    page = open_site(tmp_path)
    results = page.run(
        "const program = await load({ worker: false });"
        "const all = [];"
        "for (const inputs of argument) all.push(Object.values(await program.run(inputs))[0]);"
        "return all.map(({ data, shape }) => ({ data: [...data], shape }));",
        cases,
    )
    for case, result in zip(picked, results, strict=True):
        expected = golden[f"case{case}_output0"]
        assert result["shape"] == list(expected.shape)
        np.testing.assert_allclose(np.reshape(result["data"], expected.shape), expected, atol=1e-4)
    missing = page.run(
        "const program = await load();"
        "return failing(() => program.run({ input_0: { data: new Float32Array(21), shape: [3, 7] } }));"
    )
    assert missing.startswith("shape: The site has no plan for the shapes ([3,7]). It has plans for ([")


@pytest.mark.parametrize("name", ["dtypes", "symint_output", "select_position_last", "zero_dim", "letters"])
def test_programs_of_many_kinds(programs: Path, tmp_path: Path, open_site: Open, name: str) -> None:
    """Element types, live integers in and out, empty tensors, inputs by name."""
    method = pteron.load(programs / f"{name}.pte")["forward"]
    golden = np.load(programs / f"{name}.npz")
    count = len({key.split("_")[0] for key in golden})
    cases = [given(method, case, golden) for case in range(count)]
    shapes = [{name: each["shape"] for name, each in case.items()} for case in cases]
    pteron.export_web(programs / f"{name}.pte", tmp_path, variants=["software"], shapes=shapes)
    results = open_site(tmp_path).run(
        "const program = await load();"
        "const all = [];"
        "for (const inputs of argument) all.push(Object.values(await program.run(inputs)));"
        "return all.map((each) => each.map(({ data, shape }) => [[...data], shape]));",
        cases,
    )
    for case, outputs in enumerate(results):
        for place, (data, shape) in enumerate(outputs):
            expected = golden[f"case{case}_output{place}"]
            assert shape == list(expected.shape)
            np.testing.assert_allclose(np.reshape(data, shape), expected.astype(np.float64), atol=1e-5)


def test_states_stay_until_reset(programs: Path, tmp_path: Path, open_site: Open) -> None:
    """Calls go on from their sequence's cache, at live positions and live lengths; `reset` empties it."""
    method = pteron.load(programs / "attention_cache.pte")["forward"]
    golden = np.load(programs / "attention_cache.npz")
    cases = [given(method, case, golden) for case in range(6)]
    shapes = [{name: each["shape"] for name, each in case.items()} for case in cases]
    pteron.export_web(programs / "attention_cache.pte", tmp_path, variants=["software"], shapes=shapes)
    results = open_site(tmp_path).run(
        "const program = await load();"
        "const other = await program.sequence();"
        "const run = async (each, inputs) => [...Object.values(await each.run(inputs))[0].data];"
        "const [own, apart, again] = [[], [], []];"
        "for (const inputs of argument) {"
        "  own.push(await run(program, inputs));"
        "  apart.push(await run(other, inputs));"
        "}"
        "await program.reset();"
        "for (const inputs of argument) again.push(await run(program, inputs));"
        "return [own, apart, again];",
        cases,
    )
    for outputs in results:
        for case, found in enumerate(outputs):
            np.testing.assert_allclose(found, golden[f"case{case}_output0"].reshape(-1), atol=1e-4)
