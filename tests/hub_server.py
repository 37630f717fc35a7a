"""A hub on this machine: the part of Hugging Face's HTTP API that a download uses."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

COMMIT = "c0ffee" + "0" * 34
_LARGE = 1000  # bytes: from here on, the etag is a sha256


@dataclass
class Hub:
    """`models` has the files of each repository. A download stops after `cut_after` bytes."""

    models: dict[str, dict[str, bytes]]
    address: str = ""
    token: str | None = None  # that requests must have
    is_gated: bool = False
    commit: str = COMMIT
    cut_after: int | None = None
    has_ranges: bool = True
    excess: bytes = b""  # after the content of a file
    etag: str | None = None  # instead of the content's own
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range

    @property
    def bytes_of_parts(self) -> int:
        """How much was requested in parts that state their end."""
        spans = (span.removeprefix("bytes=").split("-") for _, _, span in self.requests if span)
        return sum(int(last) + 1 - int(first) for first, last in spans if last)

    @property
    def downloads(self) -> list[tuple[str, str | None]]:
        """The files that were requested, with the range of each."""
        return [
            (path.rpartition("/")[2], span)
            for method, path, span in self.requests
            if method == "GET" and "/resolve/" in path
        ]


@contextmanager
def serve_hub(models: dict[str, dict[str, bytes]]) -> Iterator[Hub]:
    hub = Hub(models)
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serve_only_hub(
    models: dict[str, dict[str, bytes]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hub]:
    """A hub that is the only one for this process, with caches in a folder. The library reads its environment
    variables when it is imported, so its constants are changed here."""
    from huggingface_hub import constants

    with serve_hub(models) as served:
        template = f"{served.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", served.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
        monkeypatch.setenv("PTERON_CACHE", str(folder / "cache"))
        monkeypatch.setenv("HF_TOKEN", "secret")
        yield served


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        self.hub.requests.append((self.command, path, self.headers["Range"]))
        if self.hub.token and self.headers["Authorization"] != f"Bearer {self.hub.token}":
            return self._fail(401, "RepoNotFound")
        if path == "/api/models":
            return self._list_models(parse_qs(query)["author"][0])
        if listed := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            return self._list(listed[1], listed[2] or "main")
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._send_file(self.hub.models.get(found[1], {}).get(found[3]))
        return self._fail(404, "EntryNotFound")

    def _list(self, repository: str, revision: str) -> None:
        files = self.hub.models.get(repository)
        if files is None:
            return self._fail(404, "RepoNotFound")
        if revision not in ("main", self.hub.commit):
            return self._fail(404, "RevisionNotFound")
        siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
        return self._send_json({"id": repository, "sha": self.hub.commit, "siblings": siblings})

    def _list_models(self, author: str) -> None:
        self._send_json([{"id": name} for name in self.hub.models if name.startswith(f"{author}/")])

    def _send_json(self, content: object) -> None:
        body = json.dumps(content).encode()
        self._send(200, {"Content-Type": "application/json", "Content-Length": str(len(body))}, body)

    def _send_file(self, content: bytes | None) -> None:
        if self.hub.is_gated:
            return self._fail(403, "GatedRepo")
        if content is None:
            return self._fail(404, "EntryNotFound")
        kind = hashlib.sha256 if len(content) >= _LARGE else hashlib.sha1
        headers = {
            "ETag": f'"{self.hub.etag or kind(content).hexdigest()}"',
            "X-Repo-Commit": self.hub.commit,
            "Accept-Ranges": "bytes",
        }
        status, start, end = 200, 0, len(content)
        span = self.headers["Range"] if self.hub.has_ranges else None
        if span:
            first, _, last = span.removeprefix("bytes=").partition("-")
            status, start = 206, int(first)
            end = int(last) + 1 if last else end
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        body = content[start:end] + (self.hub.excess if self.command == "GET" else b"")
        headers["Content-Length"] = str(len(body))
        if self.hub.cut_after is not None and self.command == "GET":
            body = body[: self.hub.cut_after]
            self.close_connection = True
        return self._send(status, headers, body)

    def _fail(self, status: int, code: str) -> None:
        self._send(status, {"X-Error-Code": code, "X-Error-Message": code, "Content-Length": "0"}, b"")

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
