"""Modules quantised by ExecuTorch's and torchao's own tools."""

# mypy: ignore-errors
# (torch is untyped to mypy)

import torch
from torch import nn


def _by_quantizer(module, inputs, quantizer):
    """A graph with the quantizer's operators, calibrated on the inputs."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(module, inputs).module(), quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared)


def int8_activations(module, inputs):
    """Weights and activations in 8 bits, scales from calibration (XNNPACKQuantizer)."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack

    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=False)
    return _by_quantizer(module, inputs, xnnpack.XNNPACKQuantizer().set_global(config))


def int8_weights(module, inputs):
    """Weights of linear layers in 8 bits (VulkanQuantizer)."""
    from executorch.backends.vulkan.quantizer import vulkan_quantizer as vulkan

    config = vulkan.get_symmetric_quantization_config(is_dynamic=False)
    return _by_quantizer(module, inputs, vulkan.VulkanQuantizer().set_global(config))


def _by_torchao(config):
    def quantize(module, inputs):
        from torchao.quantization import quantize_

        quantize_(module, config(), filter_fn=lambda part, name: isinstance(part, nn.Linear))
        return module

    return quantize


def _four_bits():
    from torchao.quantization import IntxWeightOnlyConfig
    from torchao.quantization.granularity import PerGroup

    return IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))


def _eight_bits():
    from torchao.quantization import IntxWeightOnlyConfig
    from torchao.quantization.granularity import PerAxis

    return IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0))


def _dynamic_four_bits():
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig
    from torchao.quantization.granularity import PerGroup

    return Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))


quantize_4w, quantize_8w, quantize_8da4w = map(_by_torchao, (_four_bits, _eight_bits, _dynamic_four_bits))
