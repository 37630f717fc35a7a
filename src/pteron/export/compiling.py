"""An exported program -> a TracedModule, from the cache if it was lowered before."""

from __future__ import annotations

import io
import json
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pteron.errors import FormatError, LoweringError, PteronError
from pteron.export import cache
from pteron.export.cache import content_key
from pteron.export.compiled import Loading, TracedModule, WholeModule
from pteron.export.constants import fold_constants, make_compact, untie_quantized_weights
from pteron.export.dims import DimNames, convolutions_without_guards, recorded_restrictions
from pteron.export.graph_passes import Functional, decompose, make_functional
from pteron.export.lowering import Options, check_inference, exporting, in_inference, lower, quiet
from pteron.export.progress import Enter
from pteron.export.signature import Leaf, Signature, dim_names, dim_ranges, input_leaves
from pteron.export.trees import register_dataclasses
from pteron.format.program import STATE_KEY
from pteron.runtime import Program

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from pteron.export.stepped import SteppedModule


class NotTraceableError(LoweringError):
    """torch.export cannot trace a module, or PyTorch cannot decompose it."""


def export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """The module in inference mode, exported; leaves the module unchanged."""
    import torch
    from torch.utils._pytree import tree_map_only

    def example(tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy, which the tracer may write to."""
        return tensor.detach().clone(memory_format=torch.contiguous_format)

    def register_outputs(module: torch.nn.Module, args: object, outputs: object) -> None:
        register_dataclasses(outputs)

    register_dataclasses((args, kwargs))
    args, kwargs = tree_map_only(torch.Tensor, example, (args, kwargs))
    with (
        exporting(),
        quiet(),
        in_inference(module),
        module.register_forward_hook(register_outputs),
        _tracing(type(module).__name__),
        redirect_stderr(io.StringIO()),  # torch.export prints the graph of a module that it cannot trace
    ):
        return torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic_shapes)


def compile_exported(
    exported: ExportedProgram,
    name: str,
    options: Options,
    loading: Loading,
    *,
    use_cache: bool,
    fullgraph: bool,
    enter: Enter,
) -> TracedModule:
    """Lower an exported program, or load it from the cache. PyTorch runs what cannot be lowered; with
    `fullgraph` that is an error. `enter` is called at each stage."""
    check_inference(exported)
    signature = Signature.of(exported)
    interface = {"module": name, **signature.metadata()}
    with exporting():
        key = content_key(exported, options, json.dumps(interface)) if use_cache else ""
        found = cache.find(key) if use_cache else None
        if found is not None:
            try:
                return WholeModule(found, loading, signature, origin="from the cache")
            except FormatError:
                cache.remove(found)  # a correct checksum of an invalid program
        with convolutions_without_guards(), recorded_restrictions() as restrictions:
            enter("importing ExecuTorch")
            with quiet():
                from pteron.export.steps import find_unlowerable
            enter("decomposing")
            prepared = _prepare(exported, name)
            lowering = _Lowering(name, options, use_cache, restrictions, enter)
            graph_module = prepared.functional.exported.graph_module
            unlowerable = find_unlowerable(graph_module)
            failure: Exception | None = None
            if not unlowerable:
                try:
                    program = lowering.whole(prepared, interface)
                    enter("loading")
                    return _load(program, key if use_cache else None, loading, signature)
                except (_NotLoweredError, FormatError) as error:
                    unlowerable, failure = find_unlowerable(graph_module, with_unbacked=False), error
            if fullgraph:
                raise _not_whole(name, unlowerable, failure) from failure
            return _in_steps(prepared, unlowerable, lowering, signature, loading, failure)


def _load(program: bytes, key: str | None, loading: Loading, signature: Signature) -> WholeModule:
    """A program that was lowered now; it is cached if it can be loaded."""
    path = None if key is None else cache.keep(key, program)
    try:
        return WholeModule(path or program, loading, signature, origin="lowered now")
    except FormatError:
        if path is not None:
            cache.remove(path)
        raise


@dataclass(frozen=True)
class _Prepared:
    """A program without writes, before it is lowered."""

    functional: Functional
    states: list[torch.Tensor]  # first values of buffers that the module writes to
    dims: InputDims


def _prepare(exported: ExportedProgram, name: str) -> _Prepared:
    """The program decomposed, with constants folded, without writes."""
    dims = InputDims.of(exported)
    try:
        with quiet():
            decomposed = decompose(exported)
            untie_quantized_weights(decomposed)
            fold_constants(decomposed)
            make_compact(decomposed)
            functional = make_functional(decomposed)
    except Exception as error:
        raise NotTraceableError(f"PyTorch cannot decompose {name} ({first_line(error)})") from error
    values = {**exported.state_dict, **exported.constants}
    return _Prepared(functional, [values[state].detach() for state in functional.states], dims)


class _NotLoweredError(Exception):
    """ExecuTorch cannot lower a program: PyTorch runs it instead."""


@dataclass(frozen=True)
class _Lowering:
    """How the programs of a module are lowered."""

    name: str  # of the module
    options: Options
    use_cache: bool
    restrictions: Mapping[Any, str]  # of dims
    enter: Enter

    def whole(self, prepared: _Prepared, interface: Mapping[str, Any]) -> bytes:
        """The module as one program."""
        from pteron.export.copies import copied

        functional = prepared.functional
        metadata = {**interface, "states": functional.states, "written": functional.written}
        data = dict(_state_data(prepared.states))
        with quiet():
            program = copied(functional.exported)
        return self._write(program, prepared.dims, metadata, data)

    def part(self, part: ExportedProgram, dims: InputDims) -> tuple[Path | bytes, bool]:
        """A part of the module as a program, and whether it was cached. Changes the part."""
        key = content_key(part, self.options, "") if self.use_cache else ""
        found = cache.find(key) if self.use_cache else None
        if found is not None:
            return found, True
        program = self._write(part, dims, {}, {})
        return (cache.keep(key, program) if self.use_cache else None) or program, False

    def _write(
        self,
        program: ExportedProgram,
        dims: InputDims,
        metadata: Mapping[str, Any],
        data: Mapping[str, bytes],
    ) -> bytes:
        try:
            self.enter("lowering")
            with quiet():
                lowered = lower(program, self.options)
                self.check(dims, lowered.edge.exported_program())
                self.enter("writing")
                return lowered.write(metadata, data)
        except LoweringError:
            raise
        except Exception as error:
            raise _NotLoweredError(f"ExecuTorch cannot lower it ({first_line(error)})") from error

    def check(self, declared: InputDims, lowered: ExportedProgram) -> None:
        """Raise if lowering fixed or restricted a dynamic dim."""
        problem = restricted_dim(declared, lowered, self.restrictions)
        if problem is not None:
            raise LoweringError(f"{self.name}: {problem}")


def _in_steps(
    prepared: _Prepared,
    unlowerable: Mapping[Any, str],
    lowering: _Lowering,
    signature: Signature,
    loading: Loading,
    failure: Exception | None,  # of lowering the whole
) -> SteppedModule:
    """Programs for what can be lowered; a warning names what PyTorch runs."""
    from pteron.export.stepped import SteppedModule
    from pteron.export.steps import split

    lowering.check(prepared.dims, prepared.functional.exported)
    steps = split(prepared.functional.exported, unlowerable)
    dims = {key: InputDims.of(part.exported) for key, part in steps.parts.items()}
    programs: dict[str, Program] = {}
    were_cached: list[bool] = []
    for key, part in list(steps.parts.items()):
        if failure is not None and not unlowerable:  # the part is the whole
            steps.keep_in_torch(key, str(failure))
            continue
        try:
            source, was_cached = lowering.part(part.exported, dims[key])
            lowering.enter("loading")
            programs[key] = loading.load(source)
            were_cached.append(was_cached)
        except (_NotLoweredError, LoweringError, FormatError) as error:
            steps.keep_in_torch(key, str(error))
    steps.finish()
    module = SteppedModule(
        lowering.name,
        signature,
        steps,
        programs,
        prepared.states,
        prepared.functional.written,
        was_cached=all(were_cached),
    )
    how = "fullgraph=True (options={'fullgraph': True} of torch.compile) makes this an error"
    warnings.warn(f"{module.name}: {module.summary()}; {how}", stacklevel=4)
    return module


def _not_whole(name: str, unlowerable: Mapping[Any, str], failure: Exception | None) -> LoweringError:
    from pteron.export.steps import reasons_by_operator

    listed = [f"{operator}: {reason}" for operator, reason in reasons_by_operator(unlowerable).items()]
    if failure is not None:
        listed.insert(0, str(failure))
    return LoweringError(
        f"{name} cannot be one program. Without fullgraph=True, PyTorch runs what a program cannot contain:"
        + "".join(f"\n  {line}" for line in listed)
    )


def first_line(error: BaseException) -> str:
    """The type and the first line of the innermost exception that has a message: ExecuTorch's passes wrap
    exceptions."""
    said, cause = error, error.__cause__
    while cause is not None:
        if str(cause).strip():
            said = cause
        cause = cause.__cause__
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return f"{type(said).__name__}: {lines[0]}" if lines else type(said).__name__


def _user_line(error: BaseException) -> str:
    """Where the module's code raised an exception."""
    import torch

    own = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if not frame.filename.startswith(own)]
    return f", at {Path(lines[-1].filename).name}:{lines[-1].lineno}: {lines[-1].line}" if lines else ""


@contextmanager
def _tracing(name: str) -> Iterator[None]:
    """Explain errors of torch.export."""
    from torch._dynamo.exc import UserError
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    try:
        yield
    except GuardOnDataDependentSymNode as error:
        raise NotTraceableError(
            f"{name} branches on the values of a tensor, or uses one as a number, which torch.export cannot "
            f"trace ({first_line(error)}{_user_line(error)}); torch.where, torch.cond or indexing with a "
            "tensor can replace it"
        ) from error
    except PteronError:
        raise
    except UserError as error:
        said = str(error).split("\n\nThe error above occurred")[0]  # advice to use another function
        raise LoweringError(f"torch.export refuses the inputs or dynamic_shapes of {name}: {said}") from error
    except Exception as error:
        raise NotTraceableError(
            f"torch.export cannot trace {name} ({first_line(error)}{_user_line(error)})"
        ) from error


@dataclass(frozen=True)
class InputDims:
    """The dims of a program's inputs."""

    names: DimNames
    leaves: list[Leaf]
    ranges: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, exported: ExportedProgram) -> InputDims:
        names = dim_names(exported)
        return cls(names, input_leaves(exported, names), dim_ranges(exported, names))


def restricted_dim(
    declared: InputDims, lowered: ExportedProgram, restrictions: Mapping[Any, str]
) -> str | None:
    """Which dynamic dim lowering fixed or restricted, and which operator is the cause."""
    names = declared.names
    causes = {names.expression(symbol): cause for symbol, cause in restrictions.items()}
    ranges = dim_ranges(lowered, names)
    found = input_leaves(lowered, names)
    found = found[len(found) - len(declared.leaves) :]  # behind the states
    for before, after in zip(declared.leaves, found, strict=True):
        for position, (dim, kept) in enumerate(zip(before.dims, after.dims, strict=True)):
            least, most = declared.ranges.get(str(dim), (0, 0))
            low, high = ranges.get(str(dim), (least, most))
            # Tracing assumes that symbols are at least 2; Pteron's planner does not.
            is_kept = not str(dim).isidentifier() or (low <= max(2, least) and high >= most)
            if dim == kept and is_kept:
                continue
            limit = f"be {kept}" if dim != kept else f"be from {low} to {high}"
            cause = causes.get(dim, "lowering")
            return (
                f"dim {position} of {before.name} ({dim}) is declared as dynamic, from {least} to {most}, but"
                f" {cause} requires it to {limit}: declare that, or change the call of {cause}"
            )
    return None


def _state_data(states: Sequence[torch.Tensor]) -> Iterator[tuple[str, bytes]]:
    """The first values of buffers that a module writes to; a buffer of zeros is not stored."""
    import torch

    for index, state in enumerate(states):
        data = state.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        if data.any():
            yield STATE_KEY.format(index), data.numpy().tobytes()
