"""examples/transcribe.py: its spectrogram, a small untrained model, and Whisper tiny.en on Debian's speech.

scripts/test --heavy tests/examples
"""

from __future__ import annotations

import shutil
import subprocess
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
import transcribe
from models import whisper

from pteron.folders import cache_folder
from pteron.package_files import PackageFiles, fetch_files
from pteron.speech import spectrogram

DIFFERENCE_MAX = 1e-2  # of scores, which reach 30
SPEECH = Path("/usr/share/sounds/alsa")  # of Debian's alsa-utils


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recordings that say where a loudspeaker stands."""
    kept = cache_folder() / "alsa-utils"
    for folder in (SPEECH, kept):
        if (folder / "Front_Center.wav").exists():
            return folder
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        pytest.skip("needs the recordings of Debian's package alsa-utils")
    temporary = tmp_path_factory.mktemp("alsa-utils")
    subprocess.run(["apt-get", "download", "-qq", "alsa-utils"], cwd=temporary, check=True)
    (package,) = temporary.glob("*.deb")
    subprocess.run(["dpkg", "-x", package.name, "files"], cwd=temporary, check=True)
    shutil.copytree(temporary / "files" / SPEECH.relative_to("/"), kept)
    return kept


def write_wav(path: Path, samples: np.ndarray, rate: int) -> Path:
    with wave.open(str(path), "w") as file:
        file.setparams((samples.shape[1], 2, rate, 0, "NONE", ""))
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return path


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_a_wav_is_averaged_and_resampled(tmp_path: Path, rate: int) -> None:
    def tones(rate: int) -> np.ndarray:
        """Two of them, for half a second; periodic in it."""
        time = np.arange(rate // 2) / rate
        return np.stack([np.sin(2 * np.pi * 440 * time), 0.5 * np.sin(2 * np.pi * 1000 * time)], 1)

    found = spectrogram.read_wav(write_wav(tmp_path / "tones.wav", tones(rate), rate))
    np.testing.assert_allclose(found, tones(16_000).mean(1), atol=1e-4)


def test_tones_above_half_the_rate_vanish(tmp_path: Path) -> None:
    high = np.sin(2 * np.pi * 12_000 * np.arange(24_000) / 48_000)[:, None]
    assert np.abs(spectrogram.read_wav(write_wav(tmp_path / "high.wav", high, 48_000))).max() < 1e-4


def test_mel_filters_are_triangles_of_equal_area() -> None:
    filters = spectrogram.mel_filters(80)
    assert filters.shape == (80, 201)
    assert ((filters > 0).sum(0) <= 2).all()  # a frequency is between two peaks
    areas = filters.sum(1) * 16_000 / 400  # hertz a column
    np.testing.assert_allclose(areas[20:], 1, atol=0.1)  # wide enough for sums to be nearly integrals


def test_a_tone_is_loud_in_its_band_alone() -> None:
    tone = np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000).astype(np.float32)
    found = spectrogram.log_mel(tone, 80, 300)[0]
    assert found.shape == (80, 300)
    assert found[:, 50].argmax() == spectrogram.mel_filters(80)[:, 25].argmax()  # 1000 Hz is column 25
    assert found[:, 50].max() - found[:, 200].max() == pytest.approx(2)  # silence: 8 decades below, of 4 each
    np.testing.assert_array_equal(found[:, 150:], found.min())


@pytest.mark.long
@pytest.mark.export
def test_a_small_model_writes_what_it_writes_in_pytorch() -> None:
    torch.manual_seed(0)
    sizes = whisper.Sizes(
        bands=8, sound_positions=30, text_positions=11, vocabulary=150, width=32, heads=2, layers=1
    )
    encoder, decoder = whisper.Encoder(sizes).eval(), whisper.Decoder(sizes).eval()
    for block, attention in zip(decoder.blocks, encoder.cross, strict=True):
        attention.load_state_dict(block.cross_attn.state_dict())
    for model in (encoder, decoder):
        torch.nn.init.normal_(model.positional_embedding)
    words = transcribe.Vocabulary([bytes([letter]) for letter in range(32, 64)])
    sound = np.random.default_rng(0).normal(size=(1, 8, 60)).astype(np.float32)
    expected = transcribe.listen(encoder, decoder, sound, words, sizes)
    compiled = transcribe.compile_both(encoder, decoder, sizes)
    found = transcribe.listen(*map(transcribe.on_gpu, compiled), sound, words, sizes)
    assert len(expected.tokens) > 1
    assert found.tokens == expected.tokens
    assert len(found.scores) == len(expected.scores)
    assert transcribe.difference_max(found, expected) < 1e-4


@pytest.mark.heavy
def test_mel_filters_are_those_of_its_training() -> None:
    member = "mlx_whisper/assets/mel_filters.npz"
    sha256 = "7450ae70723a5ef9d341e3cee628c7cb0177f36ce42c44b7ed2bf3325f0f6d4c"
    with np.load(
        fetch_files(PackageFiles("mlx-whisper", "0.4.3", {member: sha256})) / "mel_filters.npz"
    ) as published:
        np.testing.assert_allclose(spectrogram.mel_filters(80), published["mel_80"], atol=1e-7)


@pytest.mark.heavy
def test_it_writes_what_is_said(speech: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoken = {"Front_Center": "Front, center.", "Side_Left": "Side left."}
    transcribe.main([str(speech / f"{name}.wav") for name in spoken])
    said = capsys.readouterr().out
    for name, text in spoken.items():
        assert f"{name}.wav: {text}" in said
    assert said.count("on the host  0 operators") == 2
    assert said.count("the text is the same") == 2


@pytest.mark.heavy
def test_its_scores_are_pytorchs(speech: Path) -> None:
    sizes, words = whisper.Sizes(), transcribe.vocabulary()
    encoder, decoder = whisper.trained()
    compiled = transcribe.compile_both(encoder, decoder, sizes)
    sound = spectrogram.log_mel(spectrogram.read_wav(speech / "Rear_Center.wav"), 80, 3000)
    found = transcribe.listen(*map(transcribe.on_gpu, compiled), sound, words, sizes)
    expected = transcribe.listen(encoder, decoder, sound, words, sizes)
    assert found.tokens == expected.tokens
    assert transcribe.difference_max(found, expected) < DIFFERENCE_MAX
