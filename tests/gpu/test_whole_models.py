"""Whole models with random weights, through `pteron.compile`, beside PyTorch on the CPU.

Lowering takes some ten seconds a model, so a part of them is heavy:
`scripts/test --heavy tests/gpu/test_whole_models.py` runs all.
"""

# mypy: disable-error-code="no-untyped-call"
# (torch is untyped to mypy, and so are models made of its modules)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pteron
from pteron import CompiledModule

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from networks.sequences import AudioEncoder, Bert, Tagger  # noqa: E402
from networks.vision import MobileNetV3Small, ResNet18, UNet, VisionTransformer  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.export import Dim  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.kernels]

TOLERANCE = 1e-3  # in f32, of outputs of size 1
TOLERANCE_F16 = 3e-2  # with force_fp16: some hundred roundings of 1e-3 deep
Inputs = tuple[Tensor, ...]


def image(*shape: int) -> Callable[[], Inputs]:
    return lambda: (torch.randn(shape),)


def tokens(*shape: int) -> Callable[[], Inputs]:
    return lambda: (torch.randint(0, 50, shape),)


def sentence(batch: int, length: int) -> Inputs:
    """Tokens, their kinds, and a mask that hides the last ones of the first row."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length // 2 :] = 0
    return torch.randint(0, 60, (batch, length)), torch.randint(0, 2, (batch, length)), mask


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs]]] = {
    "resnet18": (ResNet18, image(1, 3, 64, 64)),
    "mobilenet_v3_small": (MobileNetV3Small, image(1, 3, 64, 64)),
    "vit": (VisionTransformer, image(1, 3, 32, 32)),
    "unet": (UNet, image(1, 1, 32, 40)),
    "unet_bilinear": (lambda: UNet(bilinear=True), image(1, 1, 32, 40)),
    "audio_encoder": (AudioEncoder, image(1, 20, 50)),
    "lstm": (Tagger, tokens(2, 3)),
    "bert": (Bert, lambda: sentence(2, 13)),
}
HEAVY = {"mobilenet_v3_small", "unet_bilinear", "bert"}
# Where an adapter has no f16, only the weights are rounded to it.
MODELS_F16 = {"resnet18": False, "vit": True, "bert": True}


def make(name: str) -> tuple[nn.Module, Callable[[], Inputs]]:
    torch.manual_seed(0)
    model, inputs = MODELS[name]
    network = model().eval()
    for part in network.modules():  # norms that do something
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.5, 0.5)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
    return network, inputs


def check(compiled: CompiledModule, model: nn.Module, inputs: Inputs, tolerance: float) -> None:
    """Outputs differ by the tolerance times the largest of them at most."""
    with torch.no_grad():
        expected = model(*inputs)
    found = compiled(*inputs)
    if isinstance(expected, Tensor):
        expected, found = (expected,), (found,)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        size = max(1.0, theirs.abs().max().item())
        assert (ours - theirs).abs().max().item() <= tolerance * size


def marked(name: str, is_heavy: bool) -> Any:
    return pytest.param(name, marks=pytest.mark.heavy) if is_heavy else name


@pytest.mark.long
@pytest.mark.parametrize("name", [marked(name, name in HEAVY) for name in MODELS])
def test_model(name: str) -> None:
    model, inputs = make(name)
    with pteron.compile(model, inputs(), use_cache=False) as compiled:
        for _ in range(2):
            check(compiled, model, inputs(), TOLERANCE)
        assert 1 - compiled.report.share <= 0.04, str(compiled)


@pytest.mark.long
@pytest.mark.parametrize("name", [marked(name, is_heavy) for name, is_heavy in MODELS_F16.items()])
def test_model_f16(name: str) -> None:
    model, inputs = make(name)
    with pteron.compile(model, inputs(), force_fp16=True, use_cache=False) as compiled:
        check(compiled, model, inputs(), TOLERANCE_F16)


@pytest.mark.long
def test_bert_at_live_lengths() -> None:
    """Batch and length vary in one program."""
    model, _ = make("bert")
    batch, length = Dim("batch", min=1, max=3), Dim("length", min=2, max=24)
    shapes = ({0: batch, 1: length},) * 3
    with pteron.compile(model, sentence(3, 24), dynamic_shapes=shapes, use_cache=False) as compiled:
        for size in ((1, 2), (2, 13), (3, 24), (1, 7)):
            check(compiled, model, sentence(*size), TOLERANCE)


# Int8 models, by ExecuTorch's quantisers ------------------------------------------------------------


def quantized(model: nn.Module, inputs: Inputs, quantizer: Any) -> nn.Module:
    """The model with quantisers' operators in it, calibrated on the inputs."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared)


@pytest.mark.long
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["weights", "activations"])
def test_linear_layers_in_int8(is_dynamic: bool) -> None:
    from executorch.backends.vulkan.quantizer import vulkan_quantizer

    config = vulkan_quantizer.get_symmetric_quantization_config(is_dynamic=is_dynamic)
    quantizer = vulkan_quantizer.VulkanQuantizer().set_global(config)
    torch.manual_seed(0)
    model, inputs = VisionTransformer(blocks=1).eval(), (torch.randn(1, 3, 32, 32),)
    reference = quantized(model, inputs, quantizer)
    with pteron.compile(reference, inputs, use_cache=False) as compiled:
        check(compiled, reference, inputs, 2e-2 if is_dynamic else TOLERANCE)


@pytest.mark.long
def test_convolutions_in_int8() -> None:
    """Weights and activations in 8 bits, from image to classes."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer

    config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=False)
    quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_global(config)
    torch.manual_seed(0)
    model, inputs = ResNet18(width=8).eval(), (torch.randn(1, 3, 32, 32),)
    reference = quantized(model, inputs, quantizer)
    with pteron.compile(reference, inputs, use_cache=False) as compiled:
        check(compiled, reference, inputs, 3e-2)
