"""Programs that others publish for ExecuTorch's GPU backends: a name -> files with revisions -> a result.

A name is an owner, `owner/name`, `owner/name@revision`, `owner/name:file.pte`, or a file or folder of this
machine. The variables of `huggingface_hub` apply: HF_ENDPOINT, HF_HOME, HF_TOKEN.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pteron
from pteron.format.source import Source
from pteron.names.cache import HubModel
from pteron.names.locate import program_files
from zoo.result import Result

OWNERS = ("executorch-community", "software-mansion")
_FOR_GPUS = re.compile(r"webgpu|vulkan", re.IGNORECASE)  # in the name of a repository or the path of a file
_TIMED_CALLS = 3


@dataclass
class PublishedResult(Result):
    """Of one file with all its methods; numbers are sums over them."""

    methods: list[str] = field(default_factory=list)
    checked: int = 0  # nodes that were compared with float64
    worst: float = 0.0  # the largest difference of a node, as a multiple of its tolerance
    launches: int = 0  # of one call of each method
    call_ms: float = 0.0


def find_programs(names: Sequence[str]) -> Iterator[str]:
    """The programs for GPUs that names mean, as `owner/name@commit:file.pte` or paths."""
    for name in names or OWNERS:
        folder = Path(name)
        if folder.exists():
            yield from map(str, sorted(folder.rglob("*.pte")) if folder.is_dir() else [folder])
        elif model := HubModel.parse(name):
            yield from _programs_of(model)
        else:
            from huggingface_hub import HfApi  # here: a folder needs no network

            for repository in sorted(each.id for each in HfApi().list_models(author=name)):
                yield from _programs_of(HubModel(repository))


def _programs_of(model: HubModel) -> Iterator[str]:
    from huggingface_hub import HfApi

    info = HfApi().model_info(model.repository, revision=model.revision)
    for file in sorted(each.rfilename for each in info.siblings or ()):
        is_for_gpus = _FOR_GPUS.search(f"{model.repository}/{file}")
        if file == model.tag or (not model.tag and file.endswith(".pte") and is_for_gpus):
            yield str(HubModel(model.repository, info.sha, file))


def measure_published(name: str) -> PublishedResult:
    """Download, load and call the program; compare each of its nodes with float64."""
    from zoo.measure import first_line

    result = PublishedResult(name, "right")
    try:
        path, data = program_files(name)
        assert isinstance(path, (str, os.PathLike))  # names and paths mean files
        with pteron.load(path, data=data) as program:
            for method in program.methods:
                if program.graphs(method):  # others return numbers about the model
                    _measure_method(result, program, method)
        for method in result.methods:
            _compare(result, path, data, method)
    except Exception as error:
        result.outcome, result.reason = "refused", first_line(error)
    return result


def _measure_method(result: PublishedResult, program: pteron.Program, name: str) -> None:
    from pteron.tools.inputs import fill_inputs
    from zoo.stock.measure import describe

    method = program[name]
    describe(result, program, name)
    result.methods.append(name)
    inputs = [given.value for given in fill_inputs(method.inputs, [], [], seed=0)]
    method(*inputs)
    before, times = method.counters.dispatches, []
    for _ in range(_TIMED_CALLS):
        start = time.perf_counter()
        method(*inputs)
        times.append(1e3 * (time.perf_counter() - start))
    result.launches += (method.counters.dispatches - before) // _TIMED_CALLS
    result.call_ms += statistics.median(times)


def _compare(
    result: PublishedResult, path: str | os.PathLike[str], data: Sequence[Source], method: str
) -> None:
    from pteron.tools.compare import Selection

    report = pteron.compare(path, Selection(method), data=data)
    result.checked += report.checked
    result.worst = max([result.worst, *(row.errors.of_tolerance for row in report.rows if row.errors)])
    if report.first is not None and result.outcome == "right":
        result.outcome = "wrong"
        result.reason = f"{method}: {report.culprit or report.first.where}: {report.first.reason}"


def hosted(results: Sequence[Result]) -> Counter[str]:
    """Uses of operators outside delegates."""
    counts = Counter[str]()
    for result in results:
        for count, name, _ in result.left:
            counts[name] += count
    return counts
