"""A module and example inputs -> a CompiledModule, from the cache if it was lowered before."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pteron.errors import FormatError, InputError, LoweringError, UnsupportedError
from pteron.export import cache
from pteron.export.cache import content_key
from pteron.export.compiled import CompiledModule
from pteron.export.graph_passes import (
    Functional,
    decompose,
    fold_constants,
    make_functional,
    remove_assertions,
)
from pteron.export.lowering import Options, check_bounds, check_inference, exporting, lower, quiet
from pteron.export.signature import Signature
from pteron.extras import check_installed
from pteron.gpu import Device

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def compile(
    module: torch.nn.Module | ExportedProgram,
    example_inputs: Sequence[object] = (),
    example_kwargs: Mapping[str, object] | None = None,
    *,
    dynamic_shapes: Any = None,
    force_fp16: bool = False,
    partitioner: str = "pteron",
    device: Device | str | None = None,
    use_cache: bool = True,
    fullgraph: bool = False,
) -> CompiledModule:
    """A callable that runs `module` on the GPU, in inference mode.

    The example inputs may be any pytrees; calls must have the same structure. `dynamic_shapes` is
    torch.export's; each dynamic dim needs a maximum. An ExportedProgram is used as it is. `force_fp16`
    computes in f16, with f32 inputs and outputs. `device` is as in `pteron.load`. The lowered program is
    cached on disk by content, unless `use_cache` is false.

    `partitioner` chooses the operators that run on the GPU: "pteron" takes all that Pteron can run; "vulkan"
    and "webgpu" keep to what ExecuTorch's partitioners of that name take, so that ExecuTorch's own runtimes
    can run the program too.

    PyTorch runs what ExecuTorch cannot write (svd, fft, custom operators), between programs; a warning names
    it. With `fullgraph` that is a LoweringError that lists all of it.
    """
    check_installed(("torch", "torchao", "executorch"), "compiling a module", "export")
    from torch.export import ExportedProgram

    if isinstance(module, ExportedProgram):
        if example_inputs or example_kwargs or dynamic_shapes is not None:
            raise InputError("an ExportedProgram has its own inputs and shapes; pass no others")
        exported, name = module, module.graph_module._get_name()
    else:
        exported = export(module, tuple(example_inputs), dict(example_kwargs or {}), dynamic_shapes)
        name = type(module).__name__
    return compile_exported(
        exported, name, Options(partitioner, force_fp16), device, use_cache=use_cache, fullgraph=fullgraph
    )


def export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """The module in inference mode, exported; leaves the module unchanged."""
    import torch
    from torch.utils._pytree import tree_map_only

    def example(tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy, which the tracer may write to."""
        return tensor.detach().clone(memory_format=torch.contiguous_format)

    args, kwargs = tree_map_only(torch.Tensor, example, (args, kwargs))
    with exporting(), torch.no_grad(), _in_inference(module), _tracing(type(module).__name__):
        return torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic_shapes)


def compile_exported(
    exported: ExportedProgram,
    name: str,
    options: Options,
    device: Device | str | None,
    *,
    use_cache: bool,
    fullgraph: bool = False,
) -> CompiledModule:
    """Lower an exported program, or load it from the cache. What cannot be lowered is run by PyTorch, or is
    an error with `fullgraph`."""
    from pteron.export.steps import find_unlowerable

    check_inference(exported)
    check_bounds(exported)
    signature = Signature(exported)
    values = {**exported.state_dict, **exported.constants}
    with exporting():
        key = content_key(exported, options) if use_cache else ""
        found = cache.find(key) if use_cache else None
        if found is not None:
            try:
                return CompiledModule(name, found, signature, values, device, was_cached=True)
            except UnsupportedError:
                raise
            except FormatError:
                cache.remove(found)  # a correct checksum of an invalid program
        functional = _functional(exported, name)
        graph_module = functional.exported.graph_module
        unlowerable, failure = find_unlowerable(graph_module), None
        if not unlowerable:
            try:
                program = _lower(functional, options)
                source: Path | bytes = (cache.keep(key, program) if use_cache else None) or program
                return CompiledModule(name, source, signature, values, device, was_cached=False)
            except (LoweringError, FormatError) as error:
                unlowerable, failure = find_unlowerable(graph_module, with_unbacked=False), error
        if fullgraph:
            raise _not_whole(name, unlowerable, failure) from failure
        return _in_steps(name, functional, unlowerable, options, device, use_cache, signature, values)


def _functional(exported: ExportedProgram, name: str) -> Functional:
    """The program decomposed, with constants folded, without writes."""
    try:
        with quiet():
            decomposed = decompose(exported)
            remove_assertions(decomposed)
            fold_constants(decomposed)
            return make_functional(decomposed)
    except Exception as error:
        raise LoweringError(f"PyTorch cannot decompose {name} ({first_line(error)})") from error


def _lower(functional: Functional, options: Options) -> bytes:
    """Lower a program that was prepared."""
    from pteron.export.steps import copied

    metadata = {"states": functional.states, "written": functional.written}
    try:
        with quiet():
            return lower(copied(functional.exported), options, metadata)
    except Exception as error:
        raise LoweringError(f"ExecuTorch cannot lower it ({first_line(error)})") from error


def _in_steps(
    name: str,
    functional: Functional,
    unlowerable: Mapping[Any, str],
    options: Options,
    device: Device | str | None,
    use_cache: bool,
    signature: Signature,
    values: Mapping[str, torch.Tensor],
) -> CompiledModule:
    """Programs for what can be lowered; a warning names what PyTorch runs."""
    from pteron.export.stepped import ProgramStep, SteppedModule
    from pteron.export.steps import split

    steps = split(functional.exported, unlowerable)
    programs = {}
    for key, part in list(steps.parts.items()):
        try:
            source, was_cached = _part_source(part.exported, options, use_cache)
            programs[key] = ProgramStep(source, device, was_cached=was_cached)
        except (LoweringError, FormatError) as error:
            steps.keep_in_torch(key, str(error))
    steps.finish()
    module = SteppedModule(name, functional, steps, programs, signature, values)
    warnings.warn(f"{name}: {module.summary()}; fullgraph=True makes this an error", stacklevel=4)
    return module


def _part_source(part: ExportedProgram, options: Options, use_cache: bool) -> tuple[Path | bytes, bool]:
    """The program of a part, and whether it was cached."""
    key = content_key(part, options) if use_cache else ""
    found = cache.find(key) if use_cache else None
    if found is not None:
        return found, True
    program = _lower(Functional(part, (), ()), options)
    return (cache.keep(key, program) if use_cache else None) or program, False


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


@contextmanager
def _tracing(name: str) -> Iterator[None]:
    """Explain errors of torch.export."""
    from torch._dynamo.exc import UserError
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    try:
        yield
    except GuardOnDataDependentSymNode as error:
        raise LoweringError(
            f"{name} branches on the values of a tensor, which torch.export cannot trace "
            f"({first_line(error)}). Use torch.where or torch.cond there, or torch.compile(module, "
            "backend='pteron'), which runs the branch in Python"
        ) from error
    except (UserError, InputError):
        raise  # about the caller's arguments
    except Exception as error:
        raise LoweringError(
            f"torch.export cannot trace {name} ({first_line(error)}). If the module runs in eager mode, use "
            "torch.compile(module, backend='pteron'), which runs in Python what cannot be traced"
        ) from error


@contextmanager
def _in_inference(module: torch.nn.Module) -> Iterator[None]:
    """The module in eval mode; restores the mode of each submodule."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
