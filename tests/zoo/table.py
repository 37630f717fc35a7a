"""The table of architectures: name -> Model."""

from __future__ import annotations

from zoo import audio, language, networks, vision
from zoo.model import Model

MODELS: dict[str, Model] = {**networks.MODELS, **language.MODELS, **audio.MODELS, **vision.MODELS}
