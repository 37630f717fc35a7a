"""The files that web/ builds are those of its sources, its own checks pass, and it packs for npm.

Without node, or without the packages of web/package-lock.json (`npm ci` in web/), most of it is skipped.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from node_fixtures import WEB, node, npm

import pteron

NPM = "https://registry.npmjs.org/"
KINDS = ("dependencies", "devDependencies", "optionalDependencies")

if not WEB.is_dir():
    pytest.skip("web/ is only in the repository", allow_module_level=True)


def test_built_files_are_those_of_the_sources() -> None:
    node("build.mjs", "--check")


def test_types() -> None:
    node("node_modules/typescript/bin/tsc", "--noEmit")


def test_lint() -> None:
    node("node_modules/@biomejs/biome/bin/biome", "check", "--error-on-warnings")


def test_own_tests() -> None:
    node("--test", *(str(path) for path in sorted((WEB / "test").glob("*.test.mjs"))))


def test_versions_and_addresses() -> None:
    """npm's version is Python's, all packages are pinned, and the lock file names no registry but npm's."""
    package = json.loads((WEB / "package.json").read_text("utf-8"))
    assert package["version"] == pteron.__version__
    assert "dependencies" not in package
    assert all(version[0].isdigit() for version in package["devDependencies"].values())
    packages = json.loads((WEB / "package-lock.json").read_text("utf-8"))["packages"]
    locked = [package for path, package in packages.items() if path]
    assert all(package["integrity"].startswith("sha512-") for package in locked)
    assert all(package.get("resolved", NPM).startswith(NPM) for package in locked)
    # Those of other systems too: without one, `npm ci` refuses the file.
    needed = {name for each in packages.values() for kind in KINDS for name in each.get(kind, {})}
    assert {f"node_modules/{name}" for name in needed} <= set(packages)


@pytest.mark.skipif(not (WEB / "player").is_dir(), reason="this checkout has no player")
def test_the_npm_package(tmp_path: Path) -> None:
    """It holds the player, its types, the licence and the README, and nothing else."""
    (packed,) = json.loads(npm("pack", "--dry-run", "--json", "--pack-destination", str(tmp_path)))
    names = {entry["path"] for entry in packed["files"]}
    assert names == {"LICENSE", "README.md", "package.json", "dist/player.js", "dist/player.d.ts"}
    assert packed["unpackedSize"] < 100_000
