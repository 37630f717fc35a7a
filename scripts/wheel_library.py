"""Hooks of Hatch. The C library that scripts/build-native compiled goes into the wheel of its platform;
without one the wheel is pure Python. Links of the README lead to the repository, on PyPI's page too."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class LibraryHook(BuildHookInterface):  # type: ignore[type-arg,misc]  # Hatch has no types
    """Reads PTERON_WHEEL_LIBRARY (a path) and PTERON_WHEEL_PLATFORM (the wheel's tag)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = os.environ.get("PTERON_WHEEL_LIBRARY")
        if library and version == "standard":
            build_data["force_include"][library] = f"pteron/gpu/{Path(library).name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{os.environ['PTERON_WHEEL_PLATFORM']}"


class ReadmeHook(MetadataHookInterface):  # type: ignore[misc]
    """The README as PyPI shows it: a relative link would lead nowhere there."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text("utf-8")
        repository, version = metadata["urls"]["Repository"], f"v{metadata['version']}"
        link = r"(\[[^]\"]*\]\()(?=[\w/.#-]+\))"  # not an index and a call in Python
        text = re.sub("!" + link, rf"!\1{repository}/raw/{version}/", text)
        text = re.sub("(?<!!)" + link, rf"\1{repository}/blob/{version}/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
