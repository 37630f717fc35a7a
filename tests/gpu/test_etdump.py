"""ETDumps of the mirror of executorch.runtime: ExecuTorch's own Inspector reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from golden import assert_outputs, read_cases

from pteron import Device, Runtime
from pteron.runtime.etdump import etdump, node_ids
from pteron.runtime.program import load
from pteron.runtime.trace import Trace

devtools: Any = pytest.importorskip("executorch.devtools")


def parsed(metadata: Sequence[bytes]) -> dict[str, Any]:
    """What the Inspector's users parse."""
    return json.loads(metadata[0]) if metadata and metadata[0] else {}


def inspected(program: Any, folder: Path, **options: Any) -> list[Any]:
    """The events of the only block."""
    paths = str(folder / "run.etdp"), str(folder / "debug.bin")
    program.write_etdump_result_to_file(*paths)
    found = devtools.Inspector(etdump_path=paths[0], delegate_metadata_parser=parsed, **options)
    (block,) = found.event_blocks
    assert block.name == "Execute"
    return list(block.events)


def test_launches_and_instructions_are_events(programs: Path, tmp_path: Path) -> None:
    program = Runtime.get().load_program(programs / "two_delegates.pte", enable_etdump=True)
    method = program.load_method("forward")
    cases = read_cases(programs / "two_delegates.npz")
    for case in cases[:1] * 3:
        assert_outputs(method.execute(case.inputs), case.outputs)
    events = inspected(program, tmp_path)
    names = [event.name for event in events]
    assert names[-1] == "Method::execute"
    assert names.count("DELEGATE_CALL") == 2
    assert any(name.startswith("native_call_") for name in names)
    assert all(len(event.perf_data.raw) == 3 for event in events)  # one for each call
    launches = [event for event in events if event.is_delegated_op]
    assert launches
    assert all(event.delegate_debug_metadatas["kernel"] for event in launches)
    whole = events[-1].perf_data.raw
    for index, call in enumerate(whole):
        assert 0 < sum(event.perf_data.raw[index] for event in launches) <= call


def test_states_continue_while_calls_are_traced(programs: Path) -> None:
    cases = read_cases(programs / "mutable_buffer.npz")
    program = Runtime.get().load_program(programs / "mutable_buffer.pte", enable_etdump=True)
    method = program.load_method("forward")
    for case in cases:
        assert_outputs(method.execute(case.inputs), case.outputs)


@pytest.mark.long
@pytest.mark.usefixtures("without_patterns")
def test_launches_have_debug_handles(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    partitioner: Any = pytest.importorskip("executorch.backends.vulkan.partitioner.vulkan_partitioner")
    exir: Any = pytest.importorskip("executorch.exir")
    layers = torch.nn.Linear(13, 7), torch.nn.ReLU(), torch.nn.Linear(7, 5), torch.nn.Softmax(-1)
    x = torch.randn(3, 13)
    exported = torch.export.export(torch.nn.Sequential(*layers).eval(), (x,))
    lowered = exir.to_edge_transform_and_lower(
        exported, partitioner=[partitioner.VulkanPartitioner()], generate_etrecord=True
    ).to_executorch()
    record = lowered.get_etrecord()
    record.save(str(tmp_path / "model.etrecord"))
    program = Runtime.get().load_program(lowered.buffer, enable_etdump=True)
    program.load_method("forward").execute(x)
    events = inspected(program, tmp_path, etrecord=str(tmp_path / "model.etrecord"))
    (call,) = [event for event in events if event.name == "DELEGATE_CALL"]
    assert call.delegate_backend_name == "VulkanBackend"
    handles = record._delegate_map["forward"][call._instruction_id]["delegate_map"]
    launches = [event for event in events if event.is_delegated_op]
    assert len(launches) >= 2
    for event in launches:
        nodes = event.delegate_debug_metadatas["nodes"]
        assert event.delegate_debug_identifier in nodes
        assert tuple(event.debug_handles) == tuple(handles[event.delegate_debug_identifier])
    done = {node for event in launches for node in event.delegate_debug_metadatas["nodes"]}
    assert done == {*handles}  # every node is part of a launch


def test_without_timestamps_the_host_measures(programs: Path, device: Device) -> None:
    features = tuple(name for name in device.adapter.features if "timestamp" not in name)
    trace = Trace()
    (case, *_) = read_cases(programs / "mlp.npz")
    with (
        closing(Device(replace(device.adapter, features=features))) as own,
        load(programs / "mlp.pte", device=own, trace=trace) as program,
    ):
        program["forward"](*case.inputs)
    launches = [event for run in trace.runs for event in run.events if event.launch]
    assert launches
    assert all(event.end > event.start for event in launches)


def test_programs_without_ids_have_names(programs: Path) -> None:
    trace = Trace()
    with load(programs / "mlp.pte", trace=trace) as program:
        (case, *_) = read_cases(programs / "mlp.npz")
        program["forward"](*case.inputs)
        assert any(node_ids(program.file).values())
        content = etdump(trace, {})
    found = devtools.etdump.serialize.deserialize_from_etdump_flatcc(content)
    names = [event.profile_event.delegate_debug_id_str for event in found.run_data[0].events]
    assert any("aten.linear.default" in name for name in names if name)


def test_nothing_is_recorded_unless_it_is_wanted(programs: Path, tmp_path: Path) -> None:
    program = Runtime.get().load_program(programs / "mlp.pte")
    with pytest.raises(RuntimeError, match="load the program with enable_etdump=True"):
        program.write_etdump_result_to_file(str(tmp_path / "a"), str(tmp_path / "b"))
