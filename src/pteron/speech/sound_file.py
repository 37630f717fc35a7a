"""A sound file (wav, flac, mp3, ogg) -> samples at Whisper's rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import chain, pairwise
from typing import Any

import numpy as np

from pteron.errors import InputError
from pteron.extras import need
from pteron.speech.spectrogram import RATE, Floats, resample

_BLOCK_SECONDS = 30
_BLOCK_SAMPLES = 1 << 25  # of all channels
_MARGIN_SECONDS = 1  # of a block's neighbours, so that blocks join without a click


def read_sound(data: bytes, seconds_max: float, check: Callable[[], None] = lambda: None) -> Floats:
    """The samples of a file, channels averaged. Longer sound, and a file that is none, are an InputError.
    `check` is called from time to time, and may raise."""
    library = need("soundfile", "reading sound", "audio")
    found = bytearray()  # samples at RATE: the file's own may be many times as many
    try:
        with library.SoundFile(BytesIO(data)) as file:
            for block in _resample_blocks(_blocks(file, seconds_max), file.samplerate):
                check()
                found += block.tobytes()
    except library.SoundFileError as error:
        reason = getattr(error, "error_string", error)  # without the name of the file object
        raise InputError(f"the file is not wav, flac, mp3 or ogg that can be read: {reason}") from None
    return np.frombuffer(found, np.float32)


def _blocks(file: Any, seconds_max: float) -> Iterator[Floats]:
    rate, count = file.samplerate, 0
    size = max(1, min(_BLOCK_SECONDS * rate, _BLOCK_SAMPLES // file.channels))
    while len(block := file.read(size, dtype="float32", always_2d=True)):
        count += len(block)
        if count > seconds_max * rate:  # a header may say anything, so what is read counts
            raise InputError(f"the sound is longer than {seconds_max:g} seconds")
        mean = block.mean(1)
        if not np.isfinite(mean).all():
            raise InputError("the sound has samples that are infinite or no number")
        yield mean


def _resample_blocks(blocks: Iterable[Floats], rate: int) -> Iterator[Floats]:
    """Resampled block by block: the spectrum of a whole hour would need gigabytes."""
    margin, done = _MARGIN_SECONDS * rate, 0
    before = nothing = np.zeros(0, np.float32)
    for block, after in pairwise(chain(blocks, [nothing])):
        around = np.concatenate([before, block, after[:margin]])
        first, end = round(len(before) * RATE / rate), done + len(block)
        count = round(end * RATE / rate) - round(done * RATE / rate)
        yield resample(around.astype(np.float64), rate)[first : first + count]
        before, done = block[-margin:], end
