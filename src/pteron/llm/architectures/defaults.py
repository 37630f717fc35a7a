"""Keys that a Hugging Face configuration leaves out have the values of its family's configuration class.

The table `defaults.json` has them by `model_type`, under common names of keys.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pteron.errors import UnsupportedError

_PARTIAL = "partial_rotary_factor"
FILE = Path(__file__).with_name("defaults.json")
# The text model in a multimodal configuration, if it does not state its own type.
TEXT_MODELS = {
    "gemma3": "gemma3_text",
    "idefics3": "llama",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "smolvlm": "llama",
}


def with_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """A Hugging Face configuration with the defaults of its family, or of its text model's."""
    kind = str(config.get("model_type"))
    text = config.get("text_config")
    if isinstance(text, dict):
        return {**config, "text_config": with_defaults({"model_type": TEXT_MODELS.get(kind), **text})}
    defaults: dict[str, Any] = json.loads(FILE.read_text("utf-8")).get(TEXT_MODELS.get(kind, kind), {})
    rope = config.get("rope_parameters") or config.get("rope_scaling") or defaults.get("rope_parameters")
    partial = (rope or {}).get(_PARTIAL) or config.get(_PARTIAL)
    if defaults and _PARTIAL not in defaults and partial not in (None, 1):
        # Hugging Face's models of these families ignore the key, other tools do not.
        raise UnsupportedError(f"{_PARTIAL} is {partial}, but models of type {kind} rotate whole heads")
    return {**defaults, **config, "rope_parameters": rope}
