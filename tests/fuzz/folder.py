"""Several files as one input: each after a line `== name`, so that a finding is a file that one can read."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

from fuzz.mutation.havoc import havoc
from fuzz.target import Mutate

_HEAD = re.compile(rb"^== ([\w.]+)\n", re.MULTILINE)


def joined(files: Mapping[str, bytes]) -> bytes:
    return b"".join(b"== %s\n%s\n" % (name.encode(), content) for name, content in files.items())


def parted(data: bytes) -> dict[str, bytes]:
    """The files of an input; text before the first name is ignored."""
    _, *parts = _HEAD.split(data)
    return {
        name.decode(): content.removesuffix(b"\n")
        for name, content in zip(parts[::2], parts[1::2], strict=True)
    }


def member_mutation(by_suffix: Mapping[str, Mutate]) -> Mutate:
    """A mutation of one of the files, by its suffix, or of the set of files."""

    def mutate(data: bytes, random: Random, other: Callable[[], bytes]) -> bytes:
        files = parted(data)
        if not files:
            return havoc(data, random, other)
        name = random.choice(list(files))
        if random.random() < 0.1:
            del files[name]
        else:
            change = by_suffix.get(Path(name).suffix, havoc)
            files[name] = change(files[name], random, lambda: parted(other()).get(name, b"{}"))
        return joined(files)

    return mutate


@contextmanager
def written(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A folder with these files."""
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        yield Path(folder)
