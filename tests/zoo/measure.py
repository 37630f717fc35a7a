"""One architecture through `pteron.compile` -> a Result: where its operators run, and how exact it is."""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

import pteron
from pteron.export.compiled import Report
from zoo.model import Model
from zoo.result import Result


def measure(name: str, model: Model) -> Result:
    """Make, compile and call a model. Errors become results."""
    try:
        module, args, kwargs = make(model)
        with torch.no_grad():
            single = module(*args, **kwargs)
    except Exception as error:
        return Result(name, "no model", first_line(error))
    start = time.process_time()
    try:
        compiled = pteron.compile(module, args, kwargs, use_cache=False)
        elapsed = time.process_time() - start
        found = compiled(*args, **kwargs)
    except Exception as error:
        return Result(name, "refused", first_line(error), compile_s=time.process_time() - start)
    result = Result(name, "right", compile_s=elapsed)
    describe(result, compiled.report)
    exact = run_in_double(module, args, kwargs)
    compare(result, found, single, exact)
    return result


def make(model: Model) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A model in eval mode and its inputs."""
    torch.manual_seed(0)
    module, args, kwargs = model.make()
    return randomize(module.eval()), args, kwargs


def randomize(module: nn.Module) -> nn.Module:
    """Random numbers replace parameters that are all zeros or ones, so that norms, biases and layer scales
    have an effect."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point() and parameter.numel() and parameter.min() == parameter.max():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
                part.running_mean.uniform_(-0.2, 0.2)
                part.running_var.uniform_(0.7, 1.3)
    return module


def describe(result: Result, report: Report) -> None:
    """Where the operators of a compiled module run."""
    result.delegates = len(report.delegates)
    result.gpu = sum(uses.total() for uses in report.delegates)
    result.host = report.host.total()
    result.left = [[call.count, call.operator, call.reason] for call in report.reasons]


def run_in_double(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The outputs in float64, or None for a module that fixes float32 inside."""
    double = copy.deepcopy(module).double()

    def widened(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.double() if tensor.dtype == torch.float32 else tensor

    args, kwargs = tree_map_only(torch.Tensor, widened, (args, kwargs))
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            return double(*args, **kwargs)
    except Exception:
        return None
    finally:
        torch.set_default_dtype(torch.float32)


def compare(result: Result, found: Any, single: Any, exact: Any) -> None:
    """Write the errors into a result."""
    found, single = tensors(found), tensors(single)
    if [each.shape for each in found] != [each.shape for each in single]:
        result.outcome, result.reason = "wrong", "shapes of outputs differ"
        return
    result.eager = None if exact is None else largest_error(single, tensors(exact))
    result.error = largest_error(found, single if exact is None else tensors(exact))
    if not result.is_allowed:
        result.outcome = "wrong"


def tensors(outputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def largest_error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference, relative to the largest value of an output. Where both have the same infinity
    or NaN there is no difference."""
    errors = [0.0]
    for a, b in zip(found, expected, strict=True):
        a, b = a.double(), b.double()
        is_finite = b.isfinite()
        same = torch.isclose(a[~is_finite], b[~is_finite], equal_nan=True)
        if not same.all() or not a[is_finite].isfinite().all():
            return float("inf")
        if is_finite.any():
            scale = b[is_finite].abs().max().clamp_min(1e-30)
            errors.append(float(((a - b)[is_finite].abs().max() / scale).nan_to_num(float("inf"))))
    return max(errors)


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:400]
