"""What `pteron serve` prints when it is ready: its address, its keys, the chat page, and a request to try."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["chat", "embeddings", "audio", "models"]  # of the request to try
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # addresses to listen at -> to connect to
_ROUTES = {"chat": "/v1/chat/completions", "embeddings": "/v1/embeddings"}


@dataclass(frozen=True)
class Banner:
    """`keys` are those that clients must send. `key_source` is a shell expression for one of them; the key
    that this command has made, `new_key`, is shown instead."""

    names: Sequence[str]
    keys: Sequence[str] = ()
    new_key: str | None = None
    key_source: str = "KEY"
    page: bool = True  # a browser can open the chat page

    def lines(self, address: str, kind: Kind) -> list[str]:
        """The lines for a server at an address."""
        verb = "is" if len(self.names) == 1 else "are"
        lines = [f"{', '.join(self.names)} {verb} served at {address}"]
        if self.keys:
            shown = [key if key == self.new_key else masked(key) for key in self.keys]
            lines.append(f"  key  {', '.join(shown)}")
        scheme, _, place = address.partition("://")
        host, _, port = place.rpartition(":")
        url = f"{scheme}://{_ANYWHERE.get(host, host)}:{port}"
        if self.page and kind in ("chat", "models"):
            lines.append(f"  chat {url} in a browser")
        return [*lines, f"  try  {self._curl(url, kind)}"]

    def _curl(self, url: str, kind: Kind) -> str:
        # The certificate may be for another name.
        words = ["curl", *(["-k"] if url.startswith("https:") else [])]
        key = self.new_key or self.key_source
        header = [f'-H "Authorization: Bearer {key}"'] if self.keys else []
        if kind == "models":
            return " ".join([*words, f"{url}/v1/models", *header])
        if kind == "audio":
            fields = f"-F file=@speech.mp3 -F {shlex.quote(f'model={self.names[0]}')}"
            return " ".join([*words, f"{url}/v1/audio/transcriptions", *header, fields])
        body: dict[str, object] = {"model": self.names[0]}
        if kind == "chat":
            body |= {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 50}
        else:
            body |= {"input": "Hello!"}
        content = ["-H 'Content-Type: application/json'", "-d", shlex.quote(json.dumps(body))]
        return " ".join([*words, f"{url}{_ROUTES[kind]}", *header, *content])


def masked(key: str) -> str:
    """The beginning of a key, by which its owner knows it."""
    return f"{key[:3] if len(key) >= 12 else ''}…"


def key_source(given: Sequence[str], file: str | None, variable: str) -> str:
    """A shell expression for the first key, as `read_api_keys` reads them."""
    if given:
        return "KEY"
    if file is not None:
        return f"$(grep -v '^#' {shlex.quote(file)} | grep -m 1 .)"
    return f"${{{variable}%%,*}}"
