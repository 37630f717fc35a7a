"""The table of architectures: name -> Model."""

from __future__ import annotations

from zoo import audio, language, networks, vision
from zoo.model import Model
from zoo.result import Result

MODELS: dict[str, Model] = {**networks.MODELS, **language.MODELS, **audio.MODELS, **vision.MODELS}


def measure_named(name: str) -> Result:
    from zoo.measure import measure  # here: in the process of one architecture, Pteron is not loaded before

    return measure(name, MODELS[name])
