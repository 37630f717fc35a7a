"""Speech to text: sound files, windows and segments of a Whisper, and its numbers beside PyTorch's."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from speech_fixtures import BYTES, PIECES, POSITIONS, SIZE, TIMES, Heard, ScriptedTranscriber, said
from speech_fixtures import LANGUAGES as KNOWN

from pteron.embeddings.hidden_states import open_served
from pteron.errors import FormatError, InputError, PteronError
from pteron.names.model_files import ModelFolder
from pteron.speech import Transcriber, is_transcriber
from pteron.speech.spectrogram import RATE, log_mel, mel_filters
from pteron.speech.transcriber import Cancelled
from pteron.speech.vocabulary import LANGUAGES, SpeechVocabulary


def sound(seconds: float) -> Any:
    return np.zeros(round(seconds * RATE), np.float32)


def spoken(transcriber: Transcriber, seconds: float, **options: Any) -> list[tuple[float, float, str]]:
    found = transcriber.transcribe(sound(seconds), **options)
    return [(round(segment.start, 2), round(segment.end, 2), segment.text) for segment in found]


def test_one_window() -> None:
    transcriber = ScriptedTranscriber(lambda *_: Heard(said(0.0, " Hello.", 1.5)))
    assert spoken(transcriber, 2) == [(0, 1.5, " Hello.")]
    assert spoken(transcriber, 1.2) == [(0, 1.2, " Hello.")]  # no longer than the sound
    assert spoken(transcriber, 0) == []


def test_windows_begin_where_segments_end() -> None:
    first = said(0.0, " one", 10.0, 10.0, " two", 20.0, 20.0)
    second = said(0.0, " three", 5.0)
    transcriber = ScriptedTranscriber(lambda window, _: Heard([first, second][window]))
    found = spoken(transcriber, 40)
    assert found == [(0, 10, " one"), (10, 20, " two"), (20, 25, " three")]
    vocabulary = transcriber.vocabulary
    assert transcriber.prompts == [
        [vocabulary.start],
        [vocabulary.previous, *first[:-1], vocabulary.start],
    ]


def test_a_window_without_an_open_segment_is_whole() -> None:
    first = said(0.0, " one", 10.0, 10.0, " two", 20.0)
    transcriber = ScriptedTranscriber(lambda window, _: Heard([first, said(0.0, " more", 1.0)][window]))
    assert spoken(transcriber, 32) == [(0, 10, " one"), (10, 20, " two"), (30, 31, " more")]


def test_silence_is_left_out() -> None:
    heard = [Heard(said(0.0, " uh", 1.0), no_speech=0.9, doubt=38), Heard(said(0.0, " yes", 1.0))]
    transcriber = ScriptedTranscriber(lambda window, _: heard[window])
    assert spoken(transcriber, 31) == [(30, 31, " yes")]
    assert transcriber.windows == 2


def test_repetition_is_tried_again_at_a_higher_temperature() -> None:
    texts = [" la" * 40, " la" * 40, " la la land"]
    transcriber = ScriptedTranscriber(lambda _, attempt: Heard(said(0.0, texts[min(attempt, 2)], 9.0)))
    (segment,) = transcriber.transcribe(sound(10))
    assert (segment.text, segment.temperature) == (" la la land", 0.4)
    assert segment.compression_ratio < 2.4
    (segment,) = transcriber.transcribe(sound(10), temperature=1.0)
    assert (segment.text, segment.temperature) == (" la" * 40, 1.0)  # a given temperature is the only one


def test_an_unlikely_text_is_tried_again() -> None:
    """And no text of a high temperature is context for the next window."""
    first, second = said(0.0, " one", 29.0, 29.0), said(0.0, " two", 1.0)

    def heard(window: int, attempt: int) -> Heard:
        return Heard(second) if window else Heard(first, doubt=38 if attempt < 3 else 0)

    transcriber = ScriptedTranscriber(heard)
    found = list(transcriber.transcribe(sound(31)))
    assert [(each.text, each.temperature) for each in found] == [(" one", 0.6), (" two", 0.0)]
    assert found[0].avg_logprob > -1
    assert transcriber.prompts[-1] == [transcriber.vocabulary.start]


def test_a_probable_silence_with_a_likely_text_is_none() -> None:
    transcriber = ScriptedTranscriber(lambda *_: Heard(said(0.0, " yes", 1.0), no_speech=0.9))
    assert spoken(transcriber, 2) == [(0, 1, " yes")]


def test_a_segment_after_the_end_and_a_long_context() -> None:
    """The latest tokens of earlier windows are context, as many as half of all positions have room for."""
    texts = ["abcdefghij" * 20, "klmnopqrst" * 20, " end"]
    parts = [said(0.0, text, 29.0, 29.0) for text in texts[:2]] + [said(0.0, " end", 1.0, 25.0, " ?", 26.0)]
    transcriber = ScriptedTranscriber(lambda window, _: Heard(parts[window]))
    found = spoken(transcriber, 60, temperature=0.1)
    assert [text for _, _, text in found] == [*texts[:2], " end"]  # the last one begins after the sound
    assert len(transcriber.prompts[-1]) == 448 // 2 + 1
    assert transcriber.prompts[-1][1:-1] == (parts[0][:-1] + parts[1][:-1])[-223:]


def test_the_prompt_and_the_task() -> None:
    transcriber = ScriptedTranscriber(
        lambda *_: Heard(said(0.0, " Hi.", 1.0)), multilingual=True, language="de"
    )
    assert transcriber.detect_language(sound(1)) == "de"
    transcriber.prompts.clear()
    spoken(transcriber, 1, language="de", task="translate", prompt="Names: Tom.")
    start = transcriber.vocabulary.start
    assert transcriber.prompts == [[start + KNOWN + 4, *b" Names: Tom.", start, start + 3, start + 1 + KNOWN]]
    english = ScriptedTranscriber(lambda *_: Heard(said(0.0, " Hi.", 1.0)))
    assert english.languages == ("en",)
    assert english.detect_language(sound(1)) == "en"
    with pytest.raises(InputError, match="must be one of en, not 'de'"):
        spoken(english, 1, language="de")
    with pytest.raises(InputError, match="cannot translate"):
        spoken(english, 1, task="translate")


def test_long_texts_and_cancelled_ones() -> None:
    transcriber = ScriptedTranscriber(lambda *_: Heard(said(0.0, "abcdefghijklmnopqrstuvwxyz" * 20, 9.0)))
    (segment,) = transcriber.transcribe(sound(10), temperature=0.5)
    assert len(segment.tokens) == 224
    left = iter([False] * 5 + [True])
    with pytest.raises(Cancelled):
        list(transcriber.transcribe(sound(10), is_cancelled=lambda: next(left)))


def test_times_are_in_order() -> None:
    """Scores of times before the last, of a third time in a row and of control tokens do not count."""
    from pteron.speech.transcriber import _allow

    vocabulary = SpeechVocabulary(BYTES, SIZE, POSITIONS, is_multilingual=True)
    flat = np.zeros(SIZE)

    def allowed(*parts: float | str) -> set[int]:
        return set(np.flatnonzero(np.isfinite(_allow(flat, said(*parts), vocabulary))).tolist())

    assert allowed() == {TIMES + step for step in range(51)}
    assert not allowed(2.0) & set(range(TIMES, SIZE))
    assert set(range(PIECES)) <= allowed(2.0)
    assert allowed(2.0, "a") == {*range(TIMES + 101, SIZE)}  # together they are likelier than any text
    assert allowed(2.0, "a", 3.0) == {*range(TIMES + 150, SIZE)}
    flat[vocabulary.end] = 50
    assert vocabulary.end in allowed(2.0, "a", 3.0)


def test_a_vocabulary_of_another_size() -> None:
    with pytest.raises(FormatError, match="does not belong to this tokenizer"):
        SpeechVocabulary(BYTES, SIZE + 5, POSITIONS, is_multilingual=True)
    assert len(LANGUAGES) == 100
    assert LANGUAGES["haw"] == "hawaiian"
    assert (LANGUAGES["ht"], LANGUAGES["yue"]) == ("haitian creole", "cantonese")


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
@pytest.mark.parametrize("rate", [16_000, 22_050, 48_000])
def test_sound_files(form: str, rate: int) -> None:
    soundfile = pytest.importorskip("soundfile", reason="needs the extra `audio`")
    from pteron.speech.sound_file import read_sound

    def tone(rate: int) -> Any:
        return 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate * 31) / rate)

    file = io.BytesIO()
    soundfile.write(file, np.stack([tone(rate), tone(rate)], 1), rate, format=form)
    found = read_sound(file.getvalue(), 40)
    assert abs(len(found) - 31 * RATE) < RATE // 5  # some add a little
    middle = slice(RATE, 30 * RATE)  # the edges, and where blocks join, may differ by coding
    power = np.abs(np.fft.rfft(found[middle]))
    assert power.argmax() == 440 * 29
    assert np.abs(found[middle]).max() < 0.56
    if form in ("WAV", "FLAC"):
        np.testing.assert_allclose(found[middle], tone(RATE)[middle], atol=2e-3)


def test_spectrograms_are_those_that_whisper_was_trained_on() -> None:
    """By PyTorch's transform of windows, as Whisper's authors publish it."""
    torch = pytest.importorskip("torch")
    tone = np.sin(2 * np.pi * 3000 * (np.arange(RATE) / RATE) ** 2)
    sound = (tone + np.random.default_rng(0).normal(size=RATE) / 50).astype(np.float32)
    window = torch.hann_window(400, dtype=torch.float64)
    waves = torch.stft(torch.from_numpy(sound).double(), 400, 160, window=window, return_complex=True)
    decades = (torch.from_numpy(mel_filters(80)).double() @ waves[:, :-1].abs() ** 2).clamp(1e-10).log10()
    expected = (decades.clamp(decades.max() - 8) + 4) / 4
    np.testing.assert_allclose(log_mel(sound, 80, 100)[0], expected, atol=1e-4)


def test_files_that_are_no_sound() -> None:
    soundfile = pytest.importorskip("soundfile", reason="needs the extra `audio`")
    from pteron.speech.sound_file import read_sound

    for data in (b"", b"RIFF", b"\x00" * 1000, b"ID3 but no sound"):
        with pytest.raises(InputError, match="not wav, flac, mp3 or ogg") as raised:
            read_sound(data, 10)
        assert "BytesIO" not in str(raised.value)
    file = io.BytesIO()
    soundfile.write(file, np.zeros(RATE * 12), RATE, format="FLAC")
    assert len(read_sound(file.getvalue(), 12)) == RATE * 12
    for limit in (10, 11.99):
        with pytest.raises(InputError, match=f"longer than {limit:g} seconds"):
            read_sound(file.getvalue(), limit)
    for number in (np.nan, np.inf):
        file = io.BytesIO()
        soundfile.write(file, np.full(RATE, number), RATE, format="WAV", subtype="FLOAT")
        with pytest.raises(InputError, match="no number"):
            read_sound(file.getvalue(), 10)


def test_long_sound_takes_the_memory_of_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may have many samples: a rate of 192,000, and silence takes a few bytes."""
    soundfile = pytest.importorskip("soundfile", reason="needs the extra `audio`")
    from pteron.speech import sound_file

    monkeypatch.setattr(sound_file, "_BLOCK_SECONDS", 1)
    file, seconds, rate = io.BytesIO(), 61, 192_000
    soundfile.write(file, np.zeros(seconds * rate + 7), rate, format="FLAC")
    checks: list[int] = []
    tracemalloc.start()
    try:
        found = sound_file.read_sound(file.getvalue(), 70, lambda: checks.append(1))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == round((seconds * rate + 7) * RATE / rate)
    assert most < seconds * rate * 2  # half of the file's samples
    assert len(checks) > seconds  # a client that leaves is noticed


@pytest.mark.long
@pytest.mark.export
def test_programs_write_what_pytorch_writes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import export_whisper
    from models import whisper

    torch.manual_seed(1)
    pieces = 256
    sizes = whisper.Sizes(
        bands=8,
        sound_positions=30,
        text_positions=14,
        vocabulary=pieces + 2 + 3 + 6 + 31,
        width=32,
        heads=2,
        layers=1,
        text_layers=2,
    )
    encoder, decoder = whisper.Encoder(sizes).eval(), whisper.Decoder(sizes).eval()
    for block, attention in zip(decoder.blocks, encoder.cross, strict=True):
        attention.load_state_dict(block.cross_attn.state_dict())
    for model in (encoder, decoder):
        torch.nn.init.normal_(model.positional_embedding)
    torch.nn.init.normal_(decoder.token_embedding.weight)
    from base64 import b64encode

    ranks = tmp_path / "words.tiktoken"
    letters = [bytes([code]) for code in range(pieces)]
    ranks.write_text("".join(f"{b64encode(each).decode()} {at}\n" for at, each in enumerate(letters)))
    folder = export_whisper.write_folder(
        tmp_path / "whisper", encoder, decoder, sizes, ranks, multilingual=True
    )
    assert is_transcriber(ModelFolder(folder))
    samples = np.random.default_rng(0).normal(size=RATE).astype(np.float32)

    def on_host(module: Any) -> Any:
        def call(*inputs: Any, on_gpu: bool) -> Any:
            with torch.no_grad():
                found = module(*(torch.as_tensor(np.asarray(each)) for each in inputs))
            return [each.numpy() for each in found]

        return call

    with Transcriber(ModelFolder(folder)) as transcriber:
        assert transcriber.languages == ("en", "zh", "de")

        def answers() -> Any:
            language = transcriber.detect_language(samples)
            window = transcriber._read(
                samples[:9600], transcriber.vocabulary.prompt("en", "transcribe"), [], (0.0,), bool
            )
            return language, window

        language, found = answers()
        transcriber._encode, transcriber._decode = on_host(encoder), on_host(decoder)
        expected_language, expected = answers()
        assert (language, found.tokens) == (expected_language, expected.tokens)
        assert found.logprob == pytest.approx(expected.logprob, abs=1e-4)
        assert found.no_speech == pytest.approx(expected.no_speech, abs=1e-5)
        assert len(found.tokens) > 2


def test_a_folder_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pteron.json").write_text('{"model": "encoder.pte", "speech": {}}')
    (tmp_path / "encoder.pte").write_bytes(b"")
    with pytest.raises(FormatError, match="an object with the decoder's file"):
        Transcriber(ModelFolder(tmp_path))
    monkeypatch.setattr("pteron.extras.find_spec", lambda name: None)
    with pytest.raises(PteronError, match="transcribing sound"):
        open_served(tmp_path)
