"""The chat page at `/`: static files, built from `web/pages/chat`, without resources of other sites.

In: the files of this package. Out: routes of an application, `/` and below `/page/`. All files are read once,
into a table by name, so that the path of a request never reaches the file system.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from fastapi import FastAPI, HTTPException, Request, Response

# The page runs its own scripts, connects to its own server, shows attached pictures (data:), and must not be
# framed.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # browsers check the ETag at each load
}
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the page; `tag` is its ETag."""

    content: bytes
    media_type: str
    tag: str


@lru_cache(maxsize=1)
def parts() -> Mapping[str, Part]:
    """All files of the page by name: "index.html", "main.js", ..."""
    table = {}
    for entry in files("pteron.serving.page").iterdir():
        media_type = _TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None:
            content = entry.read_bytes()
            table[entry.name] = Part(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:20]}"')
    return table


def mount(app: FastAPI) -> None:
    """Add the page's routes. The page is public; it prompts for a key if the API needs one."""
    table = parts()

    async def index(request: Request) -> Response:
        return _respond(request, table[_INDEX])

    async def part(request: Request, name: str) -> Response:
        if name not in table:
            raise HTTPException(404)
        return _respond(request, table[name])

    app.add_api_route("/", index, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/page/{name:path}", part, methods=["GET", "HEAD"], include_in_schema=False)


def _respond(request: Request, part: Part) -> Response:
    headers = {**_HEADERS, "ETag": part.tag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")]
    if part.tag in known:
        return Response(status_code=304, headers=headers)
    return Response(part.content, headers=headers, media_type=part.media_type)
