"""A module and example inputs -> a CompiledModule: one program, programs with PyTorch between them, or graphs
with Python code between them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pteron.errors import InputError
from pteron.export.compiled import CompiledModule, Loading, listed
from pteron.export.compiling import NotTraceableError, compile_exported, export
from pteron.export.lowering import Options
from pteron.export.progress import shown_stages
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
    digits: int | None = None,
    products: str | None = None,
    use_cache: bool = True,
    fullgraph: bool = False,
) -> CompiledModule:
    """A callable that runs `module` on the GPU, in inference mode.

    The example inputs may be any pytrees; calls must have the same structure. `dynamic_shapes` is
    torch.export's; each dynamic dim needs a maximum. An ExportedProgram is used as it is. `force_fp16`
    computes in f16, with f32 inputs and outputs. `device`, `digits` and `products` are as in
    `pteron.load`. The lowered program is cached on disk by content, unless `use_cache` is false.

    `partitioner` chooses the operators that run on the GPU: "pteron" takes all that Pteron can run; "vulkan"
    and "webgpu" keep to what ExecuTorch's partitioners of that name take, so that ExecuTorch's own runtimes
    can run the program too.

    PyTorch runs what ExecuTorch cannot write (svd, fft, custom operators), between programs; a warning names
    it. If torch.export cannot trace the module, such as a branch on the values of a tensor, its Python code
    runs, and the graphs between branches run on the GPU. With `fullgraph` both are a LoweringError.
    """
    check_installed(("torch", "torchao", "executorch"), "compiling a module", "export")
    from torch.export import ExportedProgram

    if isinstance(module, ExportedProgram):
        if example_inputs or example_kwargs or dynamic_shapes is not None:
            raise InputError("an ExportedProgram has its own inputs and shapes; pass no others")
        name = module.graph_module._get_name()
    else:
        _check_module(module, example_inputs)
        name = type(module).__name__
    options = Options(partitioner, force_fp16)
    choices: dict[str, Any] = {"use_cache": use_cache, "fullgraph": fullgraph}
    loading = Loading(device, digits, products)
    with shown_stages(name) as enter:
        if isinstance(module, ExportedProgram):
            compiled = compile_exported(module, name, options, loading, **choices, enter=enter)
            return _warn_without_gpu(name, compiled)
        args, kwargs = tuple(example_inputs), dict(example_kwargs or {})
        enter("exporting")
        try:
            exported = export(module, args, kwargs, dynamic_shapes)
            compiled = compile_exported(exported, name, options, loading, **choices, enter=enter)
            return _warn_without_gpu(name, compiled)
        except NotTraceableError as error:
            if fullgraph:
                raise
            failure = error
    from pteron.export.captured import capture

    choices |= {**asdict(options), "device": device, "digits": digits, "products": products}
    captured = capture(module, args, kwargs, choices, failure)
    warnings.warn(f"{name}: {captured.summary()}; fullgraph=True makes this an error", stacklevel=2)
    return captured


def _warn_without_gpu(name: str, compiled: CompiledModule) -> CompiledModule:
    """A module that runs on the host alone gives right results: only its speed would show it."""
    report = compiled.report
    if report.host and not report.share:
        why = "; ".join(map(str, report.reasons)) or listed(report.host)
        warnings.warn(f"{name}: nothing runs on the GPU. On the host: {why}", stacklevel=3)
    return compiled


def _check_module(module: object, example_inputs: object) -> None:
    import torch

    if not isinstance(module, torch.nn.Module) or isinstance(module, torch.jit.ScriptModule):
        kind = type(module).__name__
        raise InputError(f"pteron.compile takes a torch.nn.Module or an ExportedProgram, not a {kind}")
    if isinstance(example_inputs, torch.Tensor):
        raise InputError("example_inputs is a tensor; give a tuple of all inputs: (x,)")
