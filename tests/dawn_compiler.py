"""Dawn, the WebGPU of Chromium, as a compiler of kernels: stricter than wgpu about what WGSL is."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

from pteron.wgsl import Module

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tests" / "dawn" / "compile.mjs"
PACKAGE = ROOT / ".cache" / "dawn" / "node_modules" / "webgpu" / "index.js"


class DawnMissingError(Exception):
    """Why there is no Dawn here."""


class DawnCompiler:
    """A Node.js process that compiles one text after the other."""

    def __init__(self) -> None:
        node = shutil.which("node")
        if node is None:
            raise DawnMissingError("Node.js is not installed")
        if not PACKAGE.is_file():
            raise DawnMissingError(f"the npm package webgpu is not in {PACKAGE.parent.relative_to(ROOT)}")
        self._process = subprocess.Popen(
            [node, str(SCRIPT), str(PACKAGE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self._read() != "ready":
            _, errors = self._process.communicate()
            raise DawnMissingError(f"Dawn does not start here: {errors.strip()[-400:]}")
        self._found: dict[str, tuple[str, ...]] = {}

    @staticmethod
    def shared() -> DawnCompiler:
        """The one of this process, or a DawnMissingError."""
        found = _open()
        if isinstance(found, DawnMissingError):
            raise found
        return found

    def complaints(self, module: Module) -> tuple[str, ...]:
        """What Dawn has against a kernel, each text being compiled once."""
        if module.source not in self._found:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(module.portable_source) + "\n")
            self._process.stdin.flush()
            complaints = json.loads(self._read())
            self._found[module.source] = tuple(f"{module.kernel}: {complaint}" for complaint in complaints)
        return self._found[module.source]

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@cache
def _open() -> DawnCompiler | DawnMissingError:
    try:
        return DawnCompiler()
    except DawnMissingError as reason:
        return reason
