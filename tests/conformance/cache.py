"""Paths of recorded cases and results, and when a result is out of date."""

from __future__ import annotations

import hashlib
import json
import os
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pteron
from conformance.record import Result, is_recorded

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("PTERON_CONFORMANCE", ROOT / ".cache" / "conformance"))


def records_of(suite: str, recipe: str) -> Path:
    """The folder of a recipe's recorded cases, one for each version of the exporter."""
    return _version_folder() / suite / _file_name(recipe)


def recorded_recipes(suite: str) -> list[str]:
    """The recorded recipes of a suite, by the names of their folders."""
    folder = _version_folder() / suite
    return sorted(path.name for path in folder.iterdir() if is_recorded(path)) if folder.exists() else []


def results_of(adapter: str, suite: str) -> Path:
    """The folder of a suite's results on an adapter, a file for each recipe."""
    return _version_folder() / "results" / _file_name(adapter) / suite


def result_file(adapter: str, suite: str, recipe: str) -> Path:
    return results_of(adapter, suite) / f"{_file_name(recipe)}.json"


def write_results(path: Path, recipe: str, sources: str, results: list[Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"recipe": recipe, "sources": sources, "results": [result.to_json() for result in results]}
    path.write_text(json.dumps(content, indent=1))


def read_results(path: Path) -> tuple[str, list[Result]] | None:
    """The sources that results are of, and the results; None where there are none."""
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text())
    return content["sources"], [Result(**result) for result in content["results"]]


def sources_now() -> str:
    """A hash over Pteron's modules and kernels: results of another are out of date."""
    digest = hashlib.sha256()
    root = Path(pteron.__file__).parent
    for path in sorted(path for kind in ("*.py", "*.wgsl") for path in root.rglob(kind)):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _version_folder() -> Path:
    """Of the exporter that is installed; where none is, of the one that what is there was recorded with."""
    try:
        return FOLDER / f"executorch-{version('executorch')}"
    except PackageNotFoundError:
        return max(FOLDER.glob("executorch-*"))


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.\-]+", "_", text).strip("_")
