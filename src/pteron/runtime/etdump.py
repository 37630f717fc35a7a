"""A trace -> an ETDump, which ExecuTorch's Inspector reads.

A run is a block "Execute" with events: the call, its instructions, and the launches of delegates. If the
program's nodes have ids, a launch has the id of its node, by which an ETRecord finds debug handles; otherwise
its kernel's name. Metadata are JSON: kernel, operator, and the ids of all nodes whose work the launch does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pteron.format.delegate import read_delegate
from pteron.format.flatbuffer import INT32, UINT32, UINT64
from pteron.format.flatbuffer_writer import Field, Scalar, Table, write_flatbuffer
from pteron.format.records import ProgramFile
from pteron.runtime.trace import Trace, TracedEvent, TracedRun

BLOCK = "Execute"
_IDENTIFIER = b"ED00"
# Slots of etdump_schema_flatcc.fbs.
_VERSION, _RUN_DATA = 0, 1
_RUN_NAME, _RUN_EVENTS = 0, 3
_PROFILE_EVENT = 0
_NAME, _CHAIN, _INSTRUCTION, _ID, _ID_TEXT, _METADATA, _START, _END = range(8)
NodeIds = Mapping[tuple[str, int], Sequence[int]]  # of each node, by method and delegate; none if not known


def node_ids(file: ProgramFile) -> NodeIds:
    """The ids that the exporter gave to nodes. All zeros are no ids."""
    found = {}
    for record in file.methods:
        for index, delegate in enumerate(record.delegates):
            nodes = read_delegate(delegate.blob, file.name, lambda key: None).nodes
            ids = [node.id for node in nodes]
            found[record.name, index] = ids if len({*ids}) == len(ids) else []
    return found


def etdump(trace: Trace, ids: NodeIds) -> bytes:
    """The bytes of an ETDump, with the size in front, as ExecuTorch writes it."""
    runs: list[Table] = [_run(run, ids) for run in trace.runs]
    root: dict[int, Field] = {_VERSION: Scalar(UINT32, 0), _RUN_DATA: runs}
    return bytes(write_flatbuffer(root, _IDENTIFIER, size_prefixed=True))


def _run(run: TracedRun, ids: NodeIds) -> Table:
    events: list[Table] = [{_PROFILE_EVENT: _event(event, run.method, ids)} for event in run.events]
    return {_RUN_NAME: BLOCK, _RUN_EVENTS: events}


def _event(event: TracedEvent, method: str, ids: NodeIds) -> Table:
    fields: dict[int, Field] = {
        _NAME: event.name,
        _CHAIN: Scalar(INT32, 0),
        _INSTRUCTION: Scalar(INT32, -1 if event.instruction is None else event.instruction),
        _START: Scalar(UINT64, event.start),
        _END: Scalar(UINT64, event.end),
        _ID: Scalar(INT32, -1),
    }
    launch = event.launch
    if launch is None:
        return {**fields, _ID_TEXT: ""}
    known = ids.get((method, event.delegate or 0), ())
    about = {"kernel": event.name, "operator": launch.operator}
    if not known or launch.node >= len(known):
        text = f"{event.name}, {launch.operator}"
        return {**fields, _ID_TEXT: text, _METADATA: json.dumps(about).encode()}
    nodes = [known[node] for node in launch.nodes if node < len(known)]
    metadata = json.dumps({**about, "nodes": nodes}).encode()
    return {**fields, _ID: Scalar(INT32, known[launch.node]), _ID_TEXT: "", _METADATA: metadata}
