"""The name of a hub's program -> its bytes, without a download: parts of the file are fetched when they are
read.

    found = remote_program("owner/name:model.pte")   # (file, weight files), or None
"""

from __future__ import annotations

from dataclasses import replace

from pteron.errors import PteronError
from pteron.extras import need
from pteron.format.source import FileBytes, open_fetched
from pteron.names.cache import HubModel, find_cached, hub_model
from pteron.names.download import download_blob, hub_errors, list_files, remote_file, silent_meter
from pteron.names.model_files import MANIFEST, program_name, read_json
from pteron.names.selection import select_files, weights_beside

_AHEAD = 1 << 16  # bytes of the smallest request: a header, and what usually follows it
_BYTES_MAX = 1 << 26  # of a file that are fetched: graphs are small, constants are not read


def remote_program(given: str) -> tuple[FileBytes, list[FileBytes]] | None:
    """A hub's program and its weight file. None for every other name: of models in the cache, and of those
    from which a program must be built."""
    model = hub_model(given)
    if model is None:
        return None
    constants = need("huggingface_hub.constants", f"{model} is no path, and a model of a hub", "hub")
    if find_cached(model) is not None or constants.HF_HUB_OFFLINE:
        return None
    files = [*list_files(model)[1]]
    selection = select_files(files, model.tag, str(model))
    if selection.kind != "program":
        return None
    main = selection.main or _program_of_manifest(model)
    return _open(model, main), [_open(model, name) for name in weights_beside(files, main)]


def _program_of_manifest(model: HubModel) -> str:
    with hub_errors(model):
        manifest = download_blob(model, MANIFEST, silent_meter(model))
    return program_name(read_json(manifest) if manifest else {})


def _open(model: HubModel, file: str) -> FileBytes:
    with hub_errors(model):
        remote, headers = remote_file(model, file)
        name = str(replace(model, tag=file))
        if not remote.size:
            raise PteronError(f"{name}: the hub does not state its size; `pteron pull {name}` downloads it")
        headers["Accept-Encoding"] = "identity"  # parts of the file as it is
        return open_fetched(remote.size, name, _Parts(model, name, remote.location, headers, remote.size))


class _Parts:
    """The parts of a file that have been fetched."""

    def __init__(self, model: HubModel, name: str, url: str, headers: dict[str, str], size: int) -> None:
        self._model, self._name, self._url, self._headers, self._size = model, name, url, headers, size
        self._parts: list[tuple[int, bytes]] = []

    def __call__(self, offset: int, count: int) -> bytes:
        for start, part in self._parts:
            if start <= offset and offset + count <= start + len(part):
                return part[offset - start : offset - start + count]
        start = offset - offset % _AHEAD
        part = self._fetch(start, min(max(offset + count - start, _AHEAD), self._size - start))
        self._parts.append((start, part))
        return part[offset - start : offset - start + count]

    def _fetch(self, offset: int, count: int) -> bytes:
        from huggingface_hub import constants
        from huggingface_hub.utils import hf_raise_for_status, http_stream_backoff

        download = f"`pteron pull {self._name}` downloads it"
        if count + sum(len(part) for _, part in self._parts) > _BYTES_MAX:
            raise PteronError(f"{self._name}: its graphs take more than {_BYTES_MAX:,} bytes; {download}")
        headers = {**self._headers, "Range": f"bytes={offset}-{offset + count - 1}"}
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with (
            hub_errors(self._model),
            http_stream_backoff(
                "GET", self._url, headers=headers, timeout=timeout, retry_on_exceptions=()
            ) as response,
        ):
            hf_raise_for_status(response)
            part = bytearray()
            for piece in response.iter_bytes() if response.status_code == 206 else ():
                part += piece
                if len(part) > count:  # the rest may have no end
                    break
        if len(part) != count:
            raise PteronError(f"{self._name}: the hub sends no parts of this file; {download}")
        return bytes(part)
