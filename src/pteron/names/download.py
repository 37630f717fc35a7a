"""A hub's model -> its folder or file in the cache, downloaded where the cache lacks it.

    path = download(HubModel.parse("Qwen/Qwen3-0.6B"), progress=print)

The environment variables of `huggingface_hub` apply: HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN. A model
in the cache is used without a request to the hub. An interrupted download continues where it ended.
"""

from __future__ import annotations

import errno
import hashlib
import io
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import Any, Self
from urllib.parse import urlsplit

from pteron.errors import InputError, PteronError
from pteron.extras import need
from pteron.folders import writing_to
from pteron.names.cache import (
    COMMIT,
    PARTIAL,
    HubModel,
    cache_of_hub,
    find_cached,
    repository_folder,
    snapshot_folder,
    write_listing,
)
from pteron.names.counted_line import CountedLine
from pteron.names.kinds import ADAPTER_FILES, CONFIG, recognise, require_program, shorten
from pteron.names.model_files import read_json
from pteron.names.selection import Selection, select_files
from pteron.system import move

Report = Callable[[str], None]
CheckConfig = Callable[[str, dict[str, Any]], object]

_ETAG = re.compile(r"\w[\w.-]*", re.ASCII)
_SHA256_DIGITS = 64
_HTTP_BYTES_MAX = 50 * 10**9  # larger files come by the hub's own protocol only, without resuming
_REPORT_SECONDS = 0.1
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)


class Download(CountedLine):
    """A progress line with the bytes of a download."""

    __slots__ = ()

    @classmethod
    def of(cls, what: str, done: int, total: int) -> Self:
        return cls.counted(f"downloading {what}, {total / 1e6:,.1f} MB", done, total)


def download(
    model: HubModel,
    progress: Report = lambda line: None,
    *,
    update: bool = False,
    check_config: CheckConfig | None = None,
) -> Path:
    """A model's folder or file in the cache. It is downloaded if it is not there, and with `update` also if
    the hub has a newer one. `check_config` raises for a checkpoint that cannot be read; without it, only
    programs are downloaded, and files that are named."""
    # `llm` too: the next error would come after the download.
    extra = "hub" if check_config is None else "hub,llm"
    need("huggingface_hub", f"{model} is no path, and a model of a hub", extra)
    from huggingface_hub import constants

    cached = find_cached(model, programs_only=check_config is None)
    if cached is not None and (not update or constants.HF_HUB_OFFLINE):
        return cached
    commit, sizes = list_files(model)
    selection = select_files([*sizes], model.tag, str(model), programs_only=check_config is None)
    if check_config is None and model.tag is None:
        require_program(selection.kind, str(model))
    with hub_errors(model):
        if commit:
            write_listing(model, commit, [*sizes])
        if selection.kind == "checkpoint" and check_config is not None:
            _check_config(model, check_config)
        folder = _download_files(model, selection, sizes, progress)
    return folder / selection.main if selection.main else recognise(folder).path


def list_files(model: HubModel) -> tuple[str | None, dict[str, int]]:
    """The commit of a model's revision at the hub, and the size of each of its files."""
    from huggingface_hub import HfApi

    with hub_errors(model):
        info = HfApi().model_info(model.repository, revision=model.revision, files_metadata=True)
        if info.sha is not None and not COMMIT.fullmatch(info.sha):  # it becomes the name of a file
            raise PteronError(f"{model}: the hub names the commit {info.sha!r}, which is no commit")
        return info.sha, {str(each.rfilename): int(each.size or 0) for each in info.siblings or ()}


def download_adapter(model: HubModel) -> Path:
    """The folder of a LoRA adapter (PEFT) in the cache, or its GGUF file if a tag names one. It is downloaded
    if it is not there."""
    if model.tag is not None:
        return download(model)
    need("huggingface_hub", f"{model} is no path, and an adapter of a hub", "hub")
    from huggingface_hub import errors, hf_hub_download

    cached = snapshot_folder(model)
    if cached is not None and all((cached / file).is_file() for file in ADAPTER_FILES):
        return cached
    with hub_errors(model):
        try:
            paths = [
                hf_hub_download(model.repository, file, revision=model.revision) for file in ADAPTER_FILES
            ]
        except errors.RemoteEntryNotFoundError:
            raise InputError(
                f"{model} is no LoRA adapter: it lacks {' or '.join(ADAPTER_FILES)}; one file of it is named "
                f"as in {model}:lora.gguf"
            ) from None
    return Path(paths[0]).parent


def _download_files(model: HubModel, selection: Selection, sizes: dict[str, int], progress: Report) -> Path:
    """Download files and return the folder that they are in."""
    from huggingface_hub import hf_hub_download

    meter = _Meter(str(model), sum(sizes[file] for file in selection.files), progress)
    for file in selection.files:
        download_blob(model, file, meter)
        meter.finish_file(sizes[file])
        # The content is in the cache already, except of very large files: this adds the name of the file.
        path = Path(hf_hub_download(model.repository, file, revision=model.revision))
    return path.parents[file.count("/")]


def _check_config(model: HubModel, check_config: CheckConfig) -> None:
    """Raise for a checkpoint that cannot be read, before its weights are downloaded. Only the content of its
    configuration enters the cache: with the file's name, the folder would be a model."""
    content = download_blob(model, CONFIG, silent_meter(model))
    if content is not None:
        check_config(str(model), read_json(content))


def remote_file(model: HubModel, file: str) -> tuple[Any, dict[str, str]]:
    """What the hub says of a file (location, size, etag), and the headers of a request for its content."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    url = hf_hub_url(model.repository, file, revision=model.revision)
    remote, headers = get_hf_file_metadata(url), build_hf_headers()
    place = PureWindowsPath(remote.etag or "")  # in the cache, by this library or by the hub's
    if place.anchor or ".." in place.parts:
        raise PteronError(f"{file} of {model}: its etag {remote.etag!r} leads out of the cache")
    if urlsplit(remote.location).netloc != urlsplit(url).netloc:
        headers.pop("authorization", None)  # the token is for the hub, not for its storage
    return remote, headers


def download_blob(model: HubModel, file: str, meter: _Meter) -> Path | None:
    """Download the content of a file to its place in the cache, and return that; None if the hub states no
    place, or for very large files. A partial download is continued: the hub's library deletes it at an
    interrupt."""
    from filelock import FileLock
    from huggingface_hub.file_download import http_get

    remote, headers = remote_file(model, file)
    if not remote.etag or not _ETAG.fullmatch(remote.etag) or (remote.size or 0) > _HTTP_BYTES_MAX:
        return None
    blob: Path = repository_folder(model.repository) / "blobs" / remote.etag
    if blob.exists():
        return blob
    partial = blob.with_name(f"{blob.name}{PARTIAL}")
    lock = cache_of_hub() / ".locks" / blob.parents[1].name / f"{partial.name}.lock"
    for path in (partial, lock):
        path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        if blob.exists():  # another process was faster
            return blob
        meter.start()
        with _Partial(io.FileIO(partial, "ab"), remote.size) as opened:
            begun = opened.tell()
            meter.add(begun)
            http_get(
                remote.location,
                opened,
                resume_size=begun,
                headers=headers,
                expected_size=remote.size,
                tqdm_class=meter.bar,
            )
        _check_content(partial, remote.etag, f"{file} of {model}")
        move(partial, blob)
    return blob


def _check_content(file: Path, etag: str, what: str) -> None:
    """Large files have their sha256 as etag."""
    if len(etag) != _SHA256_DIGITS:
        return
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != etag:
        file.unlink()
        raise PteronError(f"{what}: its sha256 is {found}, expected {etag}; download it again")


class _Partial(io.BufferedWriter):
    """A file in the making, which cannot become larger than it should be: it could not be continued then."""

    def __init__(self, raw: io.FileIO, most: int | None) -> None:
        super().__init__(raw)
        self._most = most

    def write(self, chunk: Any, /) -> int:
        if self._most is not None and self.tell() + len(chunk) > self._most:
            raise PteronError(f"{self.name}: the hub sends more than the {self._most:,} bytes of this file")
        return super().write(chunk)


class _Meter:
    """Counts the bytes of several files and reports them."""

    def __init__(self, what: str, total: int, progress: Report) -> None:
        self._what, self._total, self._progress = what, total, progress
        self._before = self._done = 0  # of all files before the current one; of all
        self._reported = 0.0

    def start(self) -> None:
        """Report the first download; there may be none."""
        if not self._reported:
            self._reported = time.monotonic()
            self._progress(Download.of(self._what, 0, self._total))

    def add(self, count: float) -> None:
        self._done += int(count)
        now = time.monotonic()
        if now - self._reported >= _REPORT_SECONDS and 0 < self._done < self._total:
            self._reported = now
            self._progress(Download.of(self._what, self._done, self._total))

    def finish_file(self, size: int) -> None:
        self._before += size
        self._done = self._before

    @property
    def bar(self) -> type[_Bar]:
        """A class that the hub's library uses for progress bars."""
        return type("Bar", (_Bar,), {"meter": self})


def silent_meter(model: HubModel) -> _Meter:
    return _Meter(str(model), 0, lambda line: None)


class _Bar:
    meter: _Meter

    def __init__(self, **_: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, count: float | None = 1) -> None:
        self.meter.add(count or 0)


@contextmanager
def hub_errors(model: HubModel) -> Iterator[None]:
    """Turn errors of the hub's library into a PteronError that says what to do."""
    from huggingface_hub import constants, errors

    hub, cache = constants.ENDPOINT, cache_of_hub()
    if cache.parts[:1] == ("~",):  # otherwise the library makes a folder of this name
        raise PteronError("there is no home folder for the cache of the hub: set HF_HOME to a folder")
    try:
        yield
    except PteronError:
        raise
    except errors.GatedRepoError as error:
        raise PteronError(
            f"{model.repository} is open only to users who accepted its terms: accept them on its page at "
            f"{hub}, then log in with `hf auth login` or set HF_TOKEN"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"{model} does not exist, neither as a path nor at {hub}; a private model needs "
            "`hf auth login` or HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(f"{model.repository} has no revision {model.revision!r}") from error
    except errors.OfflineModeIsEnabled as error:
        folder = snapshot_folder(model)
        files = (
            sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.gguf")) if folder else ()
        )
        hint = f"; the cache has {shorten(files)}, which needs its full name after a colon" if files else ""
        raise PteronError(
            f"{model} is neither a path nor in the cache {cache}, and HF_HUB_OFFLINE forbids downloads{hint}"
        ) from error
    except Exception as error:  # of the network, of the hub, of the disk
        if getattr(error, "errno", None) in _DISK:
            with writing_to(cache):
                raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise PteronError(
            f"{model} cannot be downloaded from {hub}: {reason}; the next attempt continues "
            "where this one ended"
        ) from error
