"""Hooks of MkDocs: files of the repository that are not Markdown of docs/ become pages, and links follow.

These are the README, other pages at the root, and notebooks. A link to any other file of the repository, such
as a test, leads to the repository's web page.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Path in the repository -> path in the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "RELEASING.md": "releasing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "docs/notes/README.md": "notes/index.md",
    **{
        f"docs/notebooks/{path.name}": f"notebooks/{path.stem}.md"
        for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    },
}
_LINK = re.compile(r"((?:\[[\w/-]+\.md)?\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of PAGES."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        if source.endswith(".ipynb"):
            text = "\n\n".join(map(_cell, json.loads(text)["cells"]))
        files.append(File.generated(config, page, content=text))
    return files


def _cell(cell: dict[str, Any]) -> str:
    """A cell of a notebook as Markdown."""
    text = "".join(cell["source"])
    return text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Change links between files of the repository to links of the site; one whose text is the file's name
    gets the page's title. Pages of the top level have no neighbours to list at their side."""
    if page.parent is None:
        page.meta["hide"] = ["navigation"]
    source = next((source for source, name in PAGES.items() if name == page.file.src_uri), None)
    folder = posixpath.dirname(source or f"docs/{page.file.src_uri}")

    def link(found: re.Match[str]) -> str:
        if re.match(r"\w+:", found[2]):
            return found[0]
        target = posixpath.normpath(posixpath.join(folder, found[2]))
        name = PAGES.get(target, target.removeprefix("docs/"))
        file = files.get_file_from_path(name)
        if file is None:
            kind = "tree" if (ROOT / target).is_dir() else "blob"
            return f"{found[1]}{config.repo_url.rstrip('/')}/{kind}/main/{target}{found[3]}"
        here = posixpath.dirname(page.file.src_uri)
        text = f"[{file.page.title}](" if found[1].startswith("[") and file.page else found[1]
        return f"{text}{posixpath.relpath(name, here or '.')}{found[3]}"

    parts = _CODE.split(markdown)
    return "".join(part if part.startswith("`") else _LINK.sub(link, part) for part in parts)
