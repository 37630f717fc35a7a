"""A sound file (wav, flac, mp3, ogg) -> samples at Whisper's rate."""

from __future__ import annotations

from io import BytesIO

import numpy as np

from pteron.errors import InputError
from pteron.extras import need
from pteron.serving.speech.spectrogram import RATE, Floats, resample

_BLOCK_SECONDS = 30
_MARGIN_SECONDS = 1  # of a block's neighbours, so that blocks join without a click


def read_sound(data: bytes, seconds_max: float) -> Floats:
    """The samples of a file, channels averaged. Longer sound, and a file that is none, are an InputError."""
    library = need("soundfile", "reading sound", "audio")
    try:
        with library.SoundFile(BytesIO(data)) as file:
            rate, most = file.samplerate, int(seconds_max * file.samplerate)
            blocks, count = [], 0
            while len(block := file.read(_BLOCK_SECONDS * rate, dtype="float32", always_2d=True)):
                blocks.append(block.mean(1))
                count += len(block)
                if count > most:  # a header may say anything, so what is read counts
                    raise InputError(f"the sound is longer than {seconds_max:g} seconds")
    except library.SoundFileError as error:
        raise InputError(f"the file is not sound that libsndfile reads: {error}") from None
    samples = np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
    return _resample_blocks(samples, rate)


def _resample_blocks(samples: Floats, rate: int) -> Floats:
    """Resampled block by block: the spectrum of a whole hour would need gigabytes."""
    if rate == RATE:
        return samples
    block, margin = _BLOCK_SECONDS * rate, _MARGIN_SECONDS * rate
    found = []
    for start in range(0, len(samples), block):
        before = min(margin, start)
        part = resample(samples[start - before : start + block + margin].astype(np.float64), rate)
        first = round(before * RATE / rate)
        end = min(start + block, len(samples))
        count = round(end * RATE / rate) - round(start * RATE / rate)
        found.append(part[first : first + count])
    return np.concatenate(found) if found else np.zeros(0, np.float32)
