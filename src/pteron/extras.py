"""Optional libraries, each in an extra of the package."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pteron.errors import PteronError


def need(module: str, purpose: str, extra: str = "llm") -> Any:
    """Import a module of an optional dependency; if it is missing, the error says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise PteronError(_sentence(module, purpose, extra)) from error
    except Exception as error:  # a damaged installation may raise anything
        package = module.partition(".")[0]
        raise PteronError(f"{purpose}: the Python package {package!r} cannot be imported: {error}") from error


def check_installed(modules: tuple[str, ...], purpose: str, extra: str) -> None:
    """Raise an error for a missing package before the imports, which take seconds."""
    for module in modules:
        if find_spec(module) is None:
            raise PteronError(_sentence(module, purpose, extra))


def has_torch() -> bool:
    """Whether PyTorch is installed, to run ATen operators."""
    return find_spec("torch") is not None


_QUANTIZED_CACHE = "attention on a quantised KV cache: export with quantize_kv_cache off"
# ExecuTorch's own operators for language models, and how to export a model without them.
_OF_EXPORTERS = {
    "channelwise_gated_delta_rule": "linear attention: export the model with pteron.compile",
    "custom_quantized_sdpa": _QUANTIZED_CACHE,
    "custom_sdpa": "attention on a KV cache: export with use_sdpa_with_kv_cache off",
    "fast_hadamard_transform": "SpinQuant: export without it, for example with `pteron export`",
    "gated_delta_rule": "linear attention: export the model with pteron.compile",
    "quantized_moe_ffn": "a mixture of quantised experts: export with use_moe_quantized_op off",
    "sdpa_with_kv_cache": "attention on a KV cache: export with use_sdpa_with_kv_cache off",
    "update_cache": "writes to a KV cache: export with use_sdpa_with_kv_cache off",
    "update_cache_with_indices": _QUANTIZED_CACHE,
}


def why_refused(*operators: str) -> str:
    """Why operators outside the delegates cannot be called, in a sentence."""
    of_exporters = [name for name in operators if _llm_operator(name) in _OF_EXPORTERS]
    others = [name for name in operators if name not in of_exporters]
    sentences = []
    if of_exporters:
        named = (f"{name} ({_OF_EXPORTERS[_llm_operator(name)]})" for name in of_exporters)
        sentences.append(f"operators of ExecuTorch's LLM library, which run only there: {', '.join(named)}")
    if others:
        sentences.append(_why_refused(*others))
    return "; ".join(sentences)


def _llm_operator(name: str) -> str:
    """The name of an operator in ExecuTorch's library `llama`, without its overload; "" for others."""
    library, _, operator = name.partition("::")
    return operator.partition(".")[0] if library == "llama" else ""


def _why_refused(*operators: str) -> str:
    names = ", ".join(operators)
    if has_torch():
        return f"no operators that programs may call outside the delegates: {names}"
    if len(operators) > 1:
        return f"operators {names} run outside the delegates and need PyTorch: pip install 'pteron[host]'"
    return f"operator {names} runs outside the delegates and needs PyTorch: pip install 'pteron[host]'"


def _sentence(module: str, purpose: str, extra: str) -> str:
    return f"{purpose} needs the Python package {module.partition('.')[0]!r}: pip install 'pteron[{extra}]'"
