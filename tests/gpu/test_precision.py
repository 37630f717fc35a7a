"""Digits of activations: chosen by argument, variable or flag, and part of what kernels are."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check import each

import pteron
from pteron import Device
from pteron.cli.arguments import Options
from pteron.cli.llm_arguments import add_llm_arguments
from pteron.dtypes import DType
from pteron.errors import InputError
from pteron.families.attention.caches import find_caches
from pteron.llm import LanguageModel
from pteron.llm.load_options import EXACT, QUICK, LoadOptions
from pteron.ops import Target
from pteron.ops.target import EMULATED
from pteron.runtime.loaded_method import DIGITS_VARIABLE, PRODUCTS_VARIABLE, Precision

pytestmark = pytest.mark.kernels

MODEL = Path(__file__).parents[1] / "fixtures" / "models" / "tiny_llama_q4.pte"
PROMPT = [5, 17, 99, 250]


def logits_and_planes(device: Device, digits: int | None) -> tuple[np.ndarray[Any, Any], set[str]]:
    """What the model says after a prompt and a token more, and the planes of its kernels for one token."""
    with pteron.load(MODEL, device=device, digits=digits) as program:
        model = LanguageModel(program)
        model.prefill(PROMPT)
        logits = model.decode_one_token(7)
        assert model.delegate is not None
        plan, _ = model.delegate.recorded((np.array([[7]], np.int64), np.array([4], np.int64)))
        products = [launch.module.kernel for launch in plan.launches]
        planes = {dict(kernel.given)["PLANES"] for kernel in products if kernel.name == "q4_digits"}
        assert model.delegate.executable.target.digits == program.precision.digits
        return logits, planes


@pytest.fixture
def by_subgroups(device: Device, few: Target, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device, where products with few rows are made by digits."""
    monkeypatch.setattr(device, "target", few)
    return device


def test_language_models_are_quick_where_weights_are_quantised_and_matrix_cores_are(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (DIGITS_VARIABLE, PRODUCTS_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    exact, quick = Precision(), Precision(digits=2, products="f16")
    given = LoadOptions(), LoadOptions(products="f32"), LoadOptions(digits=3), LoadOptions(products="f16")
    chosen = [quick, exact, Precision(3, "f16"), quick]
    cores = replace(Target(), matrices=(EMULATED,))
    for model, target, expected in (
        (MODEL, cores, chosen),
        (MODEL, Target(), [exact, exact, exact, Precision(3, "f16")]),
        (MODEL.with_stem("tiny_llama_fp32"), cores, [exact, exact, exact, Precision(3, "f16")]),
    ):
        monkeypatch.setattr(device, "target", target)
        with pteron.load(model, device=device) as program:
            assert [options.precision(program) for options in given] == expected
    monkeypatch.setenv(PRODUCTS_VARIABLE, "f32")
    with pteron.load(MODEL, device=device) as program:
        monkeypatch.setattr(device, "target", cores)
        assert LoadOptions().precision(program) == exact


@each(
    ("products", "embedding", "is_quantized"),
    [
        ("aten.linear.default", "aten.embedding.default", False),
        ("aten.linear.default", "et_vk.embedding_q4gsw.default", False),
        ("aten.linear.default", "pteron.embedding_q8gsw.default", False),
        ("aten._weight_int8pack_mm.default", "aten.embedding.default", True),
        ("et_vk.linear_qcs4w.default", "aten.embedding.default", True),
        ("pteron.experts_int8.default", "aten.embedding.default", True),
        ("pteron.experts_q8gsw.default", "aten.embedding.default", True),
        ("pteron.linear_q8gsw.default", "aten.embedding.default", True),
    ],
)
def test_weights_of_layers_decide(
    products: str, embedding: str, is_quantized: bool, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (DIGITS_VARIABLE, PRODUCTS_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(device, "target", replace(Target(), matrices=(EMULATED,)))
    names = {"aten.linear.default": products, "aten.embedding.default": embedding}
    with pteron.load(MODEL.with_stem("tiny_llama_fp32"), device=device) as program:
        (graph,) = program.graphs("forward")
        nodes = tuple(replace(node, name=names.get(node.name, node.name)) for node in graph.nodes)
        monkeypatch.setattr(program, "graphs", lambda _: (replace(graph, nodes=nodes),))
        assert LoadOptions().precision(program) == (QUICK if is_quantized else EXACT)


def test_caches_of_language_models_have_16_bits_where_weights_are_quantised(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PRODUCTS_VARIABLE, raising=False)
    gpu = replace(Target(), is_cpu=False, shader_f16=True)

    def types(model: Path, target: Target, **options: Any) -> set[DType]:
        monkeypatch.setattr(device, "target", target)
        chosen = LoadOptions(device=device, **options)
        with pteron.load(model, adapt=chosen.adapt) as program:
            (graph,) = program.graphs("forward")
            return {cache.tensor.dtype for cache in find_caches(graph).values()}

    assert types(MODEL, gpu) == {DType.F16}
    assert types(MODEL, gpu, cache="f32") == types(MODEL, gpu, products="f32") == {DType.F32}
    assert types(MODEL.with_stem("tiny_llama_fp32"), gpu) == {DType.F32}
    for other in (replace(gpu, is_cpu=True), replace(gpu, shader_f16=False)):
        assert types(MODEL, other) == {DType.F32}


@pytest.mark.long
def test_two_digits_are_less_exact_and_three_the_default(by_subgroups: Device) -> None:
    """Programs of either kind take turns on one device: none gets the other's kernels."""
    exact, planes = logits_and_planes(by_subgroups, None)
    assert planes == {"3"}
    quick, planes = logits_and_planes(by_subgroups, 2)
    assert planes == {"2"}
    again, planes = logits_and_planes(by_subgroups, 3)
    assert planes == {"3"}
    np.testing.assert_array_equal(exact, again)
    largest = np.abs(exact).max()
    assert 1e-6 < np.abs(quick - exact).max() / largest < 1e-3
    assert quick.argmax() == exact.argmax()


def test_the_variable_holds_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Precision.chosen() == Precision(3, "f32")
    monkeypatch.setenv(DIGITS_VARIABLE, "2")
    assert pteron.load(MODEL).precision.digits == 2
    assert pteron.load(MODEL, digits=3).precision.digits == 3


@each("wrong", [0, 1, 4, -2, True])
def test_others_are_refused(wrong: int) -> None:
    with pytest.raises(InputError, match=f"digits={wrong}: digits can be 2 or 3"):
        pteron.load(MODEL, digits=wrong)


def test_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRODUCTS_VARIABLE, "f16")
    assert pteron.load(MODEL).precision.products == "f16"
    assert pteron.load(MODEL, products="f32").precision.products == "f32"
    with pytest.raises(InputError, match="products='bf16': products can be f32 or f16"):
        pteron.load(MODEL, products="bf16")


def test_a_variable_of_other_digits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIGITS_VARIABLE, "five")
    with pytest.raises(InputError, match="PTERON_DIGITS='five'"):
        pteron.load(MODEL)


def test_the_flag() -> None:
    parser = argparse.ArgumentParser()
    add_llm_arguments(Options(parser), 9)
    assert parser.parse_args(["model", "--digits", "2"]).digits == 2
    assert parser.parse_args(["model"]).digits is None
