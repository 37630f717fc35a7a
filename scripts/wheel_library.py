"""Hatch build hook: adds the C library that scripts/build-native compiled to the wheel of its platform.
Without a library the wheel is pure Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LibraryHook(BuildHookInterface):  # type: ignore[type-arg,misc]  # Hatch has no types
    """Reads PTERON_WHEEL_LIBRARY (a path) and PTERON_WHEEL_PLATFORM (the wheel's tag)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = os.environ.get("PTERON_WHEEL_LIBRARY")
        if library and version == "standard":
            build_data["force_include"][library] = f"pteron/gpu/{Path(library).name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{os.environ['PTERON_WHEEL_PLATFORM']}"
