"""The files of .github/ are valid, call scripts that exist, and name the supported versions of Python."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTIONS = sorted((GITHUB / "actions").glob("*/action.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.github-actions": ACTIONS,
    "vendor.github-issue-forms": sorted((GITHUB / "ISSUE_TEMPLATE").glob("[0-9]*.yml")),
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}

if not GITHUB.is_dir():
    pytest.skip(".github/ is only in the repository", allow_module_level=True)


@pytest.mark.long(every=2)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_schemas(schema: str) -> None:
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed")
    files = SCHEMAS[schema]
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def steps(file: Path) -> list[dict[str, Any]]:
    """The steps of a workflow or an action."""
    content = parsed(file)
    parts = [content["runs"]] if "runs" in content else content["jobs"].values()
    return [step for part in parts for step in part.get("steps", [])]


def parsed(file: Path) -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.safe_load(file.read_text("utf-8"))


@pytest.mark.parametrize("file", [*WORKFLOWS, *ACTIONS], ids=lambda file: f"{file.parent.name}/{file.name}")
def test_steps(file: Path) -> None:
    """Actions of others are pinned to a commit, scripts exist, and nothing reads a secret."""
    for step in steps(file):
        uses = step.get("uses", "")
        if uses.startswith("./"):
            assert (ROOT / uses / "action.yml").exists(), uses
        elif uses:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", uses), uses
        for script in re.findall(r"(?:scripts|\.ci)/[\w-]+", step.get("run", "")):
            assert (ROOT / script).exists(), script
    text = file.read_text("utf-8")
    assert "secrets." not in text
    pins = re.findall(r"@[0-9a-f]{40}.*", text)
    assert all(re.fullmatch(r"@\w{40} # v[\d.]+", pin) for pin in pins), "a pinned commit states its version"


def test_one_version_of_each_action() -> None:
    versions: dict[str, set[str]] = {}
    for file in (*WORKFLOWS, *ACTIONS):
        for action, version in re.findall(r"uses: ([\w/-]+)@(.*)", file.read_text("utf-8")):
            versions.setdefault(action, set()).add(version)
    assert {action: found for action, found in versions.items() if len(found) > 1} == {}


def test_matrix() -> None:
    """Tests run on every Python that the package names; options of the nightly run are options."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert parsed(GITHUB / "workflows" / "tests.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"
    options = parsed(GITHUB / "workflows" / "nightly.yml")["jobs"]["options"]["strategy"]["matrix"]["option"]
    script = (ROOT / "scripts" / "test").read_text("utf-8")
    assert all(f"\n    {option}) " in script for option in options)


def test_one_address_of_the_repository() -> None:
    """Forms, pages and notebooks name the repository of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    address = project["urls"]["Repository"]
    files = [*GITHUB.rglob("*"), *ROOT.glob("*.*"), *(ROOT / "docs").rglob("*.*")]
    files += [ROOT / "web" / "README.md", *(ROOT / "src").rglob("*.py")]
    found = {
        (path.relative_to(ROOT), name)
        for path in files
        if path.suffix in {".cff", ".ipynb", ".md", ".py", ".toml", ".yml"}
        for name in re.findall(r"https://github\.com/pteron[\w-]*/[\w-]+", path.read_text("utf-8"))
        if name != address
    }
    assert not found
