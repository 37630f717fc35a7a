"""The tables of GGUF names, beside those of the `gguf` package, for every architecture that we claim."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from gguf_writer import FLOATS

from pteron.errors import UnsupportedError
from pteron.llm.architectures import ARCHITECTURES, find_family
from pteron.llm.export.gguf_file import KEYS, LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS

gguf = pytest.importorskip("gguf")

NAMES = sorted(ARCHITECTURES)
# Tensors that llama.cpp's converters may write and that are refused here as unknown tensors: layers that
# predict further tokens, parameters of activations, learned positions where ALiBi is the usual choice, and
# matrices of models that embed texts.
REFUSED = {"glm4": "nextn", "glm4moe": "nextn", "lfm2": "dense_2", "mpt": r"ffn|position_embd"}


def stems(tensors: Iterable[Any]) -> set[str]:
    return {gguf.TENSOR_NAMES[tensor].replace("{bid}", "{}") for tensor in tensors}


def metadata_keys(holder: type = gguf.Keys) -> Iterator[str]:
    for name, value in vars(holder).items():
        if inspect.isclass(value):
            yield from metadata_keys(value)
        elif isinstance(value, str) and not name.startswith("_"):
            yield value.removeprefix("{arch}.")


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_of_an_architecture_has_a_place(name: str) -> None:
    table = ARCHITECTURES[name].gguf
    assert table is not None
    (kind,) = (kind for kind, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    skipped = set(gguf.MODEL_TENSOR_SKIP.get(kind, ()))
    missing = stems(set(gguf.MODEL_TENSORS[kind]) - skipped) - table.keys()
    refused = REFUSED.get(name)
    assert {stem for stem in missing if not refused or not re.search(refused, stem)} == set()
    named = {key.removesuffix(".weight") for key in table}
    assert named <= stems(gguf.TENSOR_NAMES)  # no name that no file has


def test_keys_are_those_of_the_package() -> None:
    known = set(metadata_keys())
    assert {*KEYS, *FLOATS.values()} <= known
    weights = {f"{stem}.weight" for stem in stems(gguf.TENSOR_NAMES)}
    assert {LONG_FACTORS, SHORT_FACTORS, ROPE_FACTORS} <= weights


@pytest.mark.parametrize("name", ["gptj", "mamba", "mistral4"])
def test_architectures_without_a_table_are_refused_by_name(name: str) -> None:
    assert name in gguf.MODEL_ARCH_NAMES.values()
    with pytest.raises(
        UnsupportedError, match=f"architecture '{name}' is not supported; known are apertus, arcee"
    ):
        find_family("model.gguf", name, gguf=True)
