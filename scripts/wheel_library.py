"""Hatch's hook: puts the C library that scripts/build-native compiled into a wheel for its platform. Without
one, wheels are pure Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LibraryHook(BuildHookInterface):  # type: ignore[type-arg,misc]  # Hatch is there while wheels are built
    """Looks for PTERON_WHEEL_LIBRARY, the file, and PTERON_WHEEL_PLATFORM, the wheel's tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = os.environ.get("PTERON_WHEEL_LIBRARY")
        if library and version == "standard":
            build_data["force_include"][library] = f"pteron/gpu/{Path(library).name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{os.environ['PTERON_WHEEL_PLATFORM']}"
