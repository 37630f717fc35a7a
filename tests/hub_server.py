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
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range

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
        path = self.path.partition("?")[0]
        self.hub.requests.append((self.command, path, self.headers["Range"]))
        if self.hub.token and self.headers["Authorization"] != f"Bearer {self.hub.token}":
            return self._fail(401, "RepoNotFound")
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
        body = json.dumps({"id": repository, "sha": self.hub.commit, "siblings": siblings}).encode()
        return self._send(200, {"Content-Type": "application/json", "Content-Length": str(len(body))}, body)

    def _send_file(self, content: bytes | None) -> None:
        if self.hub.is_gated:
            return self._fail(403, "GatedRepo")
        if content is None:
            return self._fail(404, "EntryNotFound")
        kind = hashlib.sha256 if len(content) >= _LARGE else hashlib.sha1
        headers = {
            "ETag": f'"{kind(content).hexdigest()}"',
            "X-Repo-Commit": self.hub.commit,
            "Accept-Ranges": "bytes",
        }
        status, start = 200, 0
        if span := self.headers["Range"]:
            status, start = 206, int(span.removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        body = content[start:]
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
