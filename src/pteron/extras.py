"""Optional libraries, each in an extra of the package, and how to install one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pteron.errors import PteronError


def clone() -> tuple[Path, bool] | None:
    """The clone of the repository that this package is part of, or was installed from, and whether it is
    editable; None: a release."""
    beside = Path(__file__).resolve().parents[2]
    if (beside / "pyproject.toml").exists():
        return beside, True
    import json  # here: a program without errors needs none of these
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        source = json.loads(metadata.distribution("pteron").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return None
    if "dir_info" not in source:
        return None
    folder = Path(url2pathname(urlsplit(source["url"]).path))
    return (folder, False) if (folder / "pyproject.toml").exists() else None


def pip_install(extra: str) -> str:
    """The command that adds an extra to this installation."""
    found = clone()
    if found is None:
        return f'pip install "pteron[{extra}]"'
    folder, is_editable = found
    place = "." if folder == Path.cwd() else folder
    return f'pip install {"-e " if is_editable else ""}"{place}[{extra}]"'


def need(module: str, purpose: str, extra: str = "llm") -> Any:
    """Import a module of an optional dependency; if it is missing, the error says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise PteronError(_sentence([module], purpose, extra)) from error
    except Exception as error:  # a damaged installation may raise anything
        package = module.partition(".")[0]
        raise PteronError(f"{purpose}: the Python package {package!r} cannot be imported: {error}") from error


def check_installed(modules: tuple[str, ...], purpose: str, extra: str) -> None:
    """Raise an error for missing packages before the imports, which take seconds."""
    if missing := [module for module in modules if find_spec(module) is None]:
        raise PteronError(_sentence(missing, purpose, extra))


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
    "update_and_attend": "a KV cache outside the program: export a model that holds its cache, "
    "for example with `pteron export`",
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
        sentences.append(f"operators of ExecuTorch's LLM libraries, which run only there: {', '.join(named)}")
    if others:
        sentences.append(_why_refused(*others))
    return "; ".join(sentences)


def _llm_operator(name: str) -> str:
    """The name of an operator in ExecuTorch's LLM libraries, without its overload; "" for others."""
    library, _, operator = name.partition("::")
    return operator.partition(".")[0] if library in ("llama", "kvcache") else ""


def _why_refused(*operators: str) -> str:
    names = ", ".join(operators)
    if has_torch():
        return f"no operators that programs may call outside the delegates: {names}"
    if len(operators) > 1:
        return f"operators {names} run outside the delegates and need PyTorch: {pip_install('host')}"
    return f"operator {names} runs outside the delegates and needs PyTorch: {pip_install('host')}"


def _sentence(modules: Sequence[str], purpose: str, extra: str) -> str:
    packages = ", ".join(repr(module.partition(".")[0]) for module in modules)
    noun = "package" if len(modules) == 1 else "packages"
    return f"{purpose} needs the Python {noun} {packages}: {pip_install(extra)}"
