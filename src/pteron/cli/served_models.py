"""The MODEL arguments of `pteron serve` -> models with their names, aliases and LoRA adapters."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pteron.cli.named_model import find_model
from pteron.errors import InputError

if TYPE_CHECKING:
    from pteron.names.kinds import Located


@dataclass
class GivenModel:
    """A model that arguments name: `names[0]` is its name in the API, the others are aliases."""

    given: str  # a path, or the name that it was found by
    located: Located
    names: tuple[str, ...]
    adapters: dict[str, str] = field(default_factory=dict)  # paths by name


def expand_folders(given: Sequence[str]) -> list[str]:
    """The arguments, with each folder of several models replaced by its models, named as their files are."""
    from pteron.folders import path_of
    from pteron.names.kinds import models_of_folder

    found: list[str] = []
    for each in given:
        models = models_of_folder(Path(each)) if path_of(each).is_dir() else {}
        found += [f"{name}={path}" for name, path in models.items()] or [each]
    return found


def split_name(given: str) -> tuple[str, str]:
    """NAME=MODEL as its two parts; the name of another argument is empty."""
    name, equals, path = given.partition("=")
    return (name, path) if equals and not Path(given).exists() else ("", given)


def find_models(given: Sequence[str], arguments: argparse.Namespace) -> list[GivenModel]:
    """Several models, found now. NAME=MODEL gives one another name, --alias ALIAS=NAME a further one, and
    --lora NAME:ADAPTER=PATH an adapter."""
    models = []
    for each in given:
        name, path = split_name(each)
        located = find_model(path, arguments.context)
        models.append(GivenModel(path, located, (name or located.name,)))
    by_name = {model.names[0]: model for model in models}

    def named(name: str, option: str) -> GivenModel:
        if name not in by_name:
            known = ", ".join(by_name)
            raise InputError(f"{option}: there is no model {name!r}; this server has {known}")
        return by_name[name]

    for text in arguments.alias:
        alias, _, name = text.partition("=")
        if not alias or not name:
            raise InputError(f"with several models, --alias takes ALIAS=NAME, not {text!r}")
        model = named(name, "--alias")
        model.names += (alias,)
    for text, path in arguments.lora:
        name, _, adapter = text.rpartition(":")
        if not name or not adapter:
            raise InputError(f"with several models, --lora takes NAME:ADAPTER=PATH, not {text}={path}")
        named(name, "--lora").adapters[adapter] = path
    return models
