"""`estimate`: a program -> memory, traffic, launches and times on GPUs, from plans and the GPUs' rates. It
needs no GPU.

The floor of a launch is the time of its bytes or of its operations, whichever is longer, and a launch.
Kernels do not reach it: the likely time has the share of the rates that they reach on an H200, and the time
until a launch fills the GPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pteron.errors import InputError, OutOfMemory
from pteron.format.source import open_bytes
from pteron.llm.names.model_names import locate_program
from pteron.names.kinds import Located
from pteron.names.locate import is_program_file
from pteron.ops import Target
from pteron.tools.estimate.gpus import Gpu, gpu_of_adapter, known_gpus
from pteron.tools.estimate.report import CallEstimate, Estimate, GpuEstimate
from pteron.tools.inputs import LiveSize, live_shapes
from pteron.tools.inspect.figures import PlanFigures, figures_of
from pteron.tools.inspect.plans import plan_delegate
from pteron.tools.inspect.program import ExaminedMethod, examine_program
from pteron.tools.local_adapter import LocalAdapter, find_adapter
from pteron.tools.profile.work import LaunchWork
from pteron.tools.workload import Decode, Prefill, Selection, Workload

# Fitted to the H200's times of Llama-3.2-1B (4 bits), ViT-B/16 and ResNet-18; see docs/estimate.md.
_REACHED = 0.8  # of the rates
# More for a launch, until all parts of the GPU work and after the first are done: one that moves, one that
# computes.
_FILL_MOVING, _FILL_COMPUTING = 2e-6, 8e-6
_CLOSE = 0.5  # a file below this part of the memory is not planned: it fits
_LANGUAGE = ("get_max_seq_len", "get_max_context_len", "get_vocab_size")  # methods of language models
PREFILL, DECODE = 512, 100  # tokens read, tokens in the KV cache


def estimate(
    path: str | os.PathLike[str],
    gpus: Sequence[Gpu] | None = None,
    *,
    data: Sequence[str | os.PathLike[str]] = (),
    method: str | None = None,
    prefill: Sequence[int] = (),
    decode: Sequence[int] = (),
    sizes: Sequence[LiveSize] = (),
) -> Estimate:
    """Memory and times of a program, by path or name, on some GPUs, by default on all of the table.

    A language model is estimated for prompts of `prefill` tokens and decode steps with `decode` tokens in the
    KV cache; other programs at the maximum shapes, or at `sizes`.
    """
    if not is_program_file(path):
        located = locate_program(path)
        path, data = located.program, data or located.data
    chosen = known_gpus() if gpus is None else tuple(gpus)
    planned: dict[Target, _Planned] = {}
    found = []
    for gpu in chosen:
        if gpu.target not in planned:
            planned[gpu.target] = _plan(Path(path), gpu.target, data, method, prefill, decode, sizes)
        found.append(_on_gpu(gpu, planned[gpu.target]))
    if not found:
        raise InputError("name at least one GPU")
    return Estimate(Path(path).name, planned[chosen[0].target].method, tuple(found))


@dataclass(frozen=True, slots=True)
class _Planned:
    """What the plans of a method's calls do, for one target."""

    method: str
    figures: PlanFigures  # the most that any call needs
    calls: tuple[tuple[Workload, list[LaunchWork]], ...]


def _plan(
    path: Path,
    target: Target,
    data: Sequence[str | os.PathLike[str]],
    method: str | None,
    prefill: Sequence[int],
    decode: Sequence[int],
    sizes: Sequence[LiveSize],
) -> _Planned:
    examined = examine_program(open_bytes(path), data, local=LocalAdapter(target, "the GPU"))
    names = {each.report.name for each in examined.methods}
    chosen = _method(path.name, examined.methods, method)
    is_language = bool(names & {*_LANGUAGE}) and len(chosen.report.inputs) == 2
    if (prefill or decode) and not is_language:
        raise InputError(f"{path.name} is no language model: it takes no prefill or decode")
    calls: Sequence[Workload] = [Selection(chosen.report.name, sizes=sizes)]
    if is_language:
        calls = _language_steps(chosen, _context(examined.methods), prefill, decode)
    compiled = chosen.compiled_for(target)
    works, figures = [], []
    for call in calls:
        done: list[LaunchWork] = []
        given = live_shapes(chosen.report.inputs, _sizes(call, chosen))
        integers = call.context if isinstance(call, Decode) else 0
        for index, each in enumerate(compiled):
            planned = plan_delegate(chosen, index, each, given, integers)
            done += planned.works
            figures.append(figures_of(each, planned.plan))
        works.append((call, done))
    return _Planned(chosen.report.name, _most(figures, len(compiled)), tuple(works))


def _method(name: str, methods: Sequence[ExaminedMethod], wanted: str | None) -> ExaminedMethod:
    able = [each for each in methods if each.delegates and wanted in (None, each.report.name)]
    first = [each for each in able if each.report.name == "forward"] or able
    if not first:
        names = ", ".join(each.report.name for each in methods if each.delegates)
        if wanted and names:
            raise InputError(f"{name} has no method {wanted!r} that runs on a GPU; it has {names}")
        raise InputError(f"{name}: nothing of it runs on a GPU")
    return first[0]


def _context(methods: Sequence[ExaminedMethod]) -> int | None:
    """The most tokens in a KV cache, by the constant methods of a language model."""
    for name in ("get_max_context_len", "get_max_seq_len"):
        for each in methods:
            value = each.report.outputs[0].value if each.report.name == name else None
            if isinstance(value, int):
                return value
    return None


def _language_steps(
    method: ExaminedMethod, context: int | None, prefill: Sequence[int], decode: Sequence[int]
) -> list[Workload]:
    tokens = method.report.inputs[0]
    most = tokens.shape_max[-1]
    found: list[Workload] = []
    for count in prefill or (min(PREFILL, most),):
        if not 1 <= count <= most:
            raise InputError(f"prefill of {count} tokens: the program takes 1 to {most} in one call")
        if tokens.dynamic[-1]:
            found.append(Prefill(count))
    shortest = DECODE if context is None else min(DECODE, context - 1)
    for count in decode:
        if context is not None and count >= context:
            raise InputError(f"decode at context {count}: the KV cache holds {context}, one more is needed")
    return [*found, *map(Decode, decode or (shortest,))]


def _sizes(work: Workload, method: ExaminedMethod) -> Sequence[LiveSize]:
    if isinstance(work, Selection):
        return work.sizes
    return [LiveSize(_tokens(work))] if method.report.inputs[0].dynamic[-1] else ()


def _tokens(work: Prefill | Decode) -> int:
    return work.tokens if isinstance(work, Prefill) else 1


def _most(figures: Sequence[PlanFigures], delegates: int) -> PlanFigures:
    """The memory of all delegates; scratch memory of the largest plan of each."""
    of_each = [figures[index::delegates] for index in range(delegates)]
    return PlanFigures(
        launches=max(each.launches for each in figures),
        weights=sum(max(plan.weights for plan in plans) for plans in of_each),
        states=sum(plans[0].states for plans in of_each),
        activations=sum(plans[0].activations for plans in of_each),
        scratch=sum(max(plan.scratch for plan in plans) for plans in of_each),
    )


def _on_gpu(gpu: Gpu, planned: _Planned) -> GpuEstimate:
    figures = planned.figures
    return GpuEstimate(
        gpu=gpu.name,
        memory=figures.memory,
        memory_of_gpu=gpu.memory_bytes,
        weights=figures.weights,
        states=figures.states,
        calls=tuple(_call(gpu, call, works) for call, works in planned.calls),
        source=gpu.source,
        is_measured=gpu.is_measured,
    )


def _call(gpu: Gpu, call: Workload, works: Sequence[LaunchWork]) -> CallEstimate:
    times = [launch_times(gpu, each) for each in works]
    what, tokens = (call.method or "", 0) if isinstance(call, Selection) else (str(call), _tokens(call))
    return CallEstimate(
        what,
        tokens,
        len(works),
        sum(each.bytes_read + each.bytes_written for each in works),
        sum(each.operations or 0.0 for each in works),
        sum(floor for floor, _ in times),
        sum(likely for _, likely in times),
    )


def launch_times(gpu: Gpu, work: LaunchWork) -> tuple[float, float]:
    """The floor of a launch and its likely time, in seconds."""
    moving = (work.bytes_read + work.bytes_written) / gpu.bytes_per_second
    computing = (work.operations or 0.0) / gpu.operations_per_second
    longer = max(moving, computing)
    fill = _FILL_COMPUTING if computing > moving else _FILL_MOVING
    return longer + gpu.launch_seconds, longer / _REACHED + gpu.launch_seconds + fill


def check_fits(located: Located, adapter: str | None = None) -> None:
    """Raise OutOfMemory if the weights of a program and the memory of a call exceed the memory of the GPU
    that the table has for the adapter. KV caches do not count: options change their size."""
    program = located.program
    gpu = gpu_of_adapter(find_adapter(adapter).adapter or "")
    if gpu is None or gpu.memory_bytes is None or program.suffix != ".pte":
        return
    if program.stat().st_size < _CLOSE * gpu.memory_bytes:
        return
    (found,) = estimate(program, [gpu]).gpus
    needed = found.memory - found.states
    if needed > gpu.memory_bytes:
        raise OutOfMemory(
            f"{program} needs {needed:,} bytes on a GPU, without KV caches; {gpu.name} has "
            f"{gpu.memory_bytes:,}: choose a smaller model or quantisation, or another GPU (--device)"
        )
