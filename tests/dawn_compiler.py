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
    @cache
    def shared() -> DawnCompiler:
        """The one of this process."""
        return DawnCompiler()

    def complaints(self, module: Module) -> tuple[str, ...]:
        """What Dawn has against a kernel, each text being compiled once."""
        source = module.portable_source
        if source not in self._found:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(source) + "\n")
            self._process.stdin.flush()
            told = json.loads(self._read())
            self._found[source] = tuple(f"{module.kernel}: {complaint}" for complaint in told)
        return self._found[source]

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
