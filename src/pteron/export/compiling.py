"""A module and example inputs -> a CompiledModule, from the cache if it was lowered before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pteron.errors import FormatError, InputError, LoweringError, UnsupportedError
from pteron.export import cache
from pteron.export.cache import content_key
from pteron.export.compiled import CompiledModule
from pteron.export.graph_passes import decompose, fold_constants, make_functional
from pteron.export.lowering import Options, check_bounds, check_inference, exporting, lower, quiet
from pteron.export.signature import Signature
from pteron.export.tied_weights import untie_quantized_weights
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

    args, kwargs = tree_map_only(torch.Tensor, example, (args, kwargs))
    with exporting(), torch.no_grad(), _in_inference(module):
        return torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic_shapes)


def compile_exported(
    exported: ExportedProgram, name: str, options: Options, device: Device | str | None, use_cache: bool
) -> CompiledModule:
    """Lower an exported program, or load it from the cache."""
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
        program = _lower(exported, name, options)
        source: Path | bytes = (cache.keep(key, program) if use_cache else None) or program
        return CompiledModule(name, source, signature, values, device, was_cached=False)


def _lower(exported: ExportedProgram, name: str, options: Options) -> bytes:
    """Lower; an error names the module and the cause."""
    try:
        with quiet():
            decomposed = decompose(exported)
            untie_quantized_weights(decomposed)
            fold_constants(decomposed)
            functional = make_functional(decomposed)
            metadata = {"states": functional.states, "written": functional.written}
            return lower(functional.exported, options, metadata)
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # ExecuTorch's passes wrap exceptions
            cause = cause.__cause__
        first = next(iter(str(cause).splitlines()), "")
        raise LoweringError(f"ExecuTorch cannot lower {name} ({type(cause).__name__}: {first})") from error


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
