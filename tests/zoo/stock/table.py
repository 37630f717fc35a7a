"""The table of stock exports: name -> Recipe."""

from __future__ import annotations

from zoo.result import StockResult
from zoo.stock import detection, sequences, streams, vision
from zoo.stock.recipe import Recipe

_SINGLE: dict[str, Recipe] = {
    **detection.RECIPES,
    **vision.RECIPES,
    **sequences.RECIPES,
    **streams.RECIPES,
}
_ALSO_HALF = (
    *("yolo_detect", "blazeface", "pp_ocr_detector"),
    *("mobilenet_v3", "resnet_photos", "depth_anything", "sam2_mask_decoder", "clip", "real_esrgan"),
    *("minilm", "modernbert", "decoder_prompt", "whisper_encoder", "whisper_decoder", "vits"),
    *("unet_of_diffusion", "vae", "taesd"),
    *("average", "gru", "convolution_tails_lengths", "kv_cache"),
)

RECIPES: dict[str, Recipe] = _SINGLE | {f"{name}_f16": _SINGLE[name].in_half() for name in _ALSO_HALF}


def measure_named(name: str) -> StockResult:
    from zoo.stock.measure import measure  # here: in the process of one recipe, Pteron is not loaded before

    return measure(name, RECIPES[name])
