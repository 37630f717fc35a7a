"""Sound to log-mel spectrogram, as Whisper was trained on it: 16,000 samples a second in, 100 frames out."""

from __future__ import annotations

import wave
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

RATE = 16_000  # samples a second
WINDOW, HOP = 400, 160  # samples
# The mel scale is linear below BEND and logarithmic above: 15 mel lie below it, 27 in each factor of 6.4.
BEND, BEND_MEL, MEL_A_FACTOR, FACTOR = 1000.0, 15.0, 27.0, 6.4


def read_wav(path: Path) -> Floats:
    """The samples of a 16-bit .wav file, in [-1, 1), channels averaged, resampled to RATE."""
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2:
            raise ValueError(f"{path}: its samples have {8 * file.getsampwidth()} bits, 16 are expected")
        rate, channels = file.getframerate(), file.getnchannels()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, channels)
    return resample(samples.mean(1) / 32768, rate)


def resample(samples: NDArray[np.float64], rate: int) -> Floats:
    """From `rate` to RATE by cutting or extending the spectrum, so that nothing folds back."""
    count = round(len(samples) * RATE / rate)
    if rate == RATE or count == 0:
        return samples[:count].astype(np.float32)
    return (np.fft.irfft(np.fft.rfft(samples), count) * count / len(samples)).astype(np.float32)


@lru_cache(maxsize=4)
def mel_filters(bands: int) -> Floats:
    """[bands, WINDOW / 2 + 1]: triangles of equal width in mel and of equal area in hertz."""
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    corners = mel_to_hertz(np.linspace(0, hertz_to_mel(RATE / 2), bands + 2))
    below, centre, above = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising = (frequencies - below) / (centre - below)
    falling = (above - frequencies) / (above - centre)
    triangles = np.maximum(0, np.minimum(rising, falling))
    return (triangles * 2 / (above - below)).astype(np.float32)


def hertz_to_mel(hertz: float) -> float:
    if hertz < BEND:
        return hertz / BEND * BEND_MEL
    return float(BEND_MEL + MEL_A_FACTOR * np.log(hertz / BEND) / np.log(FACTOR))


def mel_to_hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mel < BEND_MEL, mel * BEND / BEND_MEL, BEND * FACTOR ** ((mel - BEND_MEL) / MEL_A_FACTOR))


def log_mel(samples: Floats, bands: int, frames: int) -> Floats:
    """[1, bands, frames] of as many samples, filled with silence; about -1 to 1, 8 decades below the loudest
    at the least."""
    padded = np.zeros(frames * HOP, np.float32)
    padded[: len(samples)] = samples
    around = np.pad(padded, WINDOW // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(around, WINDOW)[::HOP][:frames]
    hann = np.hanning(WINDOW + 1)[:-1]
    power = np.abs(np.fft.rfft(windows * hann)) ** 2
    decades = np.log10(np.maximum(mel_filters(bands) @ power.T, 1e-10))
    loud = np.maximum(decades, decades.max() - 8)
    return np.asarray((loud + 4) / 4, np.float32)[None]
