"""Writes down what is said in .wav files: Whisper tiny.en, encoder and decoder on the GPU.

    python examples/transcribe.py SPEECH.wav ...

Sound is heard in pieces of half a minute. What the encoder remembers of it, and what the decoder remembers of
its text, stays on the GPU: for each token the host reads scores and sends the best token back.
"""

from __future__ import annotations

import sys
import wave
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models.whisper import Sizes, silence, trained

import pteron
from pteron.package_files import PackageFiles, fetch_files
from pteron.speech.spectrogram import HOP, Floats, log_mel, read_wav

PIECES = PackageFiles(
    "mlx-whisper",
    "0.4.3",
    {
        "mlx_whisper/assets/gpt2.tiktoken": (
            "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
        )
    },
)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens that are pieces of text come first; those that steer the decoder follow."""

    pieces: Sequence[bytes]

    @property
    def end(self) -> int:
        return len(self.pieces)

    @property
    def prompt(self) -> list[int]:
        """Begin a transcript, without times: 99 languages and five further tokens stand between the two."""
        return [self.end + 1, self.end + 106]

    def text(self, tokens: Sequence[int]) -> str:
        return b"".join(self.pieces[token] for token in tokens).decode("utf-8", "replace").strip()


@dataclass(frozen=True)
class Transcript:
    tokens: list[int]
    scores: list[Floats]  # [vocabulary], those that each token was chosen from


def vocabulary() -> Vocabulary:
    """Whisper's English pieces of text: one a line, in base 64, with its number."""
    lines = (fetch_files(PIECES, print) / "gpt2.tiktoken").read_text("ascii").splitlines()
    return Vocabulary([b64decode(line.split()[0]) for line in lines])


def compile_both(encoder: Any, decoder: Any, sizes: Sizes) -> tuple[Any, Any]:
    """The two programs, compiled for sound of full length and one token."""
    frames = 2 * sizes.sound_positions
    memories = (sizes.heads, sizes.sound_positions, sizes.width // sizes.heads)
    sound = [torch.zeros(memories) for _ in range(2 * sizes.decoder_layers)]
    token = torch.zeros(1, dtype=torch.long)
    return (
        pteron.compile(encoder, (torch.zeros(1, sizes.bands, frames),)),
        pteron.compile(decoder, (token, token, *sound, *silence(sizes))),
    )


@torch.no_grad()
def listen(
    encode: Callable[..., Any],
    decode: Callable[..., Any],
    spectrogram: Floats,
    words: Vocabulary,
    sizes: Sizes,
) -> Transcript:
    """Encode a spectrogram, then take the best token until the transcript ends."""
    sound, text = encode(torch.from_numpy(spectrogram)), silence(sizes)
    made = Transcript([], [])
    given = list(words.prompt)
    for position in count():
        token, place = torch.tensor([given[position]]), torch.tensor([position])
        scores, *text = decode(token, place, *sound, *text)
        if position + 1 < len(given):
            continue  # of the prompt only the last token is answered
        made.scores.append(scores.numpy()[0])
        allowed = made.scores[-1].copy()
        allowed[words.end + 1 :] = -np.inf  # no steering
        if not made.tokens:
            allowed[[words.end, words.pieces.index(b" ")]] = -np.inf  # not nothing
        best = int(allowed.argmax())
        if best == words.end or position + 1 == sizes.text_positions:
            return made
        made.tokens.append(best)
        given.append(best)
    raise AssertionError("the loop ends at the last position")


def on_gpu(compiled: Any) -> Callable[..., Any]:
    """A compiled module whose outputs stay on the GPU, to be inputs of later calls."""
    return partial(compiled.program["forward"], on_gpu=True)


def difference_max(found: Transcript, expected: Transcript) -> float:
    """Of scores, as long as both transcripts took the same way."""
    largest = 0.0
    for index, (scores, wanted) in enumerate(zip(found.scores, expected.scores, strict=False)):
        if found.tokens[:index] == expected.tokens[:index]:
            largest = max(largest, float(np.abs(scores - wanted).max()))
    return largest


def main(arguments: Sequence[str]) -> None:
    if not arguments:
        raise SystemExit(__doc__)
    try:
        recordings = {path: read_wav(path) for path in map(Path, arguments)}
    except (OSError, ValueError, wave.Error) as error:
        raise SystemExit(f"{Path(__file__).name}: {error}") from None
    sizes, words = Sizes(), vocabulary()
    encoder, decoder = trained()
    compiled = compile_both(encoder, decoder, sizes)
    print(*compiled, sep="\n")
    frames = 2 * sizes.sound_positions
    for path, samples in recordings.items():
        for begin in range(0, len(samples), frames * HOP):
            spectrogram = log_mel(samples[begin : begin + frames * HOP], sizes.bands, frames)
            found = listen(*map(on_gpu, compiled), spectrogram, words, sizes)
            expected = listen(encoder, decoder, spectrogram, words, sizes)
            print(f"{path.name}: {words.text(found.tokens)}")
            print(
                f"  beside PyTorch: scores differ by {difference_max(found, expected):.1e} at most, "
                f"the text is {'the same' if found.tokens == expected.tokens else 'another'}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
