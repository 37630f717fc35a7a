"""A module and example inputs -> a CompiledModule, from the cache if it was lowered before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pteron.errors import FormatError, InputError, LoweringError, PteronError, UnsupportedError
from pteron.export import cache
from pteron.export.cache import content_key
from pteron.export.compiled import CompiledModule, state_key
from pteron.export.dims import DimNames, recorded_restrictions
from pteron.export.graph_passes import decompose, fold_constants, make_functional
from pteron.export.lowering import Options, check_inference, exporting, lower, quiet
from pteron.export.signature import Signature, dim_names, dim_ranges, input_leaves
from pteron.export.tied_weights import untie_quantized_weights
from pteron.export.trees import register_dataclasses
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
) -> CompiledModule:
    """A callable that runs `module` on the GPU, in inference mode.

    The example inputs may be any pytrees; calls must have the same structure. `dynamic_shapes` is
    torch.export's; each dynamic dim needs a maximum. An ExportedProgram is used as it is. `force_fp16`
    computes in f16, with f32 inputs and outputs. `device` is as in `pteron.load`. The lowered program is
    cached on disk by content, unless `use_cache` is false.

    `partitioner` chooses the operators that run on the GPU: "pteron" takes all that Pteron can run; "vulkan"
    and "webgpu" keep to what ExecuTorch's partitioners of that name take, so that ExecuTorch's own runtimes
    can run the program too.
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
    return compile_exported(exported, name, Options(partitioner, force_fp16), device, use_cache)


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
    with exporting(), torch.no_grad(), _in_inference(module), module.register_forward_hook(register_outputs):
        return torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic_shapes)


def compile_exported(
    exported: ExportedProgram, name: str, options: Options, device: Device | str | None, use_cache: bool
) -> CompiledModule:
    """Lower an exported program, or load it from the cache."""
    check_inference(exported)
    signature = Signature.of(exported)
    interface = {"module": name, **signature.metadata()}
    with exporting():
        key = content_key(exported, options, json.dumps(interface)) if use_cache else ""
        found = cache.find(key) if use_cache else None
        if found is not None:
            try:
                return CompiledModule(found, device, signature, origin="from the cache")
            except UnsupportedError:
                raise
            except FormatError:
                cache.remove(found)  # a correct checksum of an invalid program
        program = _lower(exported, name, options, signature)
        source: Path | bytes = (cache.keep(key, program) if use_cache else None) or program
        return CompiledModule(source, device, signature, origin="lowered now")


def _lower(exported: ExportedProgram, name: str, options: Options, signature: Signature) -> bytes:
    """Lower; an error names the module and the cause."""
    names = dim_names(exported)
    try:
        with quiet(), recorded_restrictions() as restrictions:
            decomposed = decompose(exported)
            untie_quantized_weights(decomposed)
            fold_constants(decomposed)
            functional = make_functional(decomposed)
            lowered = lower(functional.exported, options)
            check_dims(signature, lowered.edge.exported_program(), names, restrictions)
            values = {**exported.state_dict, **exported.constants}
            states = [values[state] for state in functional.states]
            metadata = {"module": name, "states": functional.states, "written": functional.written}
            return lowered.write({**metadata, **signature.metadata()}, dict(_state_data(states)))
    except PteronError as error:
        raise type(error)(f"{name}: {error}") from error
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # ExecuTorch's passes wrap exceptions
            cause = cause.__cause__
        first = next(iter(str(cause).splitlines()), "")
        raise LoweringError(f"ExecuTorch cannot lower {name} ({type(cause).__name__}: {first})") from error


def check_dims(
    declared: Signature, lowered: ExportedProgram, names: DimNames, restrictions: Mapping[Any, str]
) -> None:
    """Raise if lowering fixed or restricted a dynamic dim."""
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
            raise LoweringError(
                f"dim {position} of {before.name} ({dim}) is declared as dynamic, from {least} to {most}, but"
                f" {cause} requires it to {limit}: declare that, or change the call of {cause}"
            )


def _state_data(states: Sequence[torch.Tensor]) -> Iterator[tuple[str, bytes]]:
    """The first values of buffers that a module writes to; a buffer of zeros is not stored."""
    import torch

    for index, state in enumerate(states):
        data = state.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        if data.any():
            yield state_key(index), data.numpy().tobytes()


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
