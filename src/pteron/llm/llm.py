"""LLM: a program and its tokenizer, text in and a stream of text out.

llm = LLM("folder")
for piece in llm.generate("Once upon a time"):
    print(piece.text, end="", flush=True)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pteron.errors import InputError
from pteron.llm.chat import Message
from pteron.llm.continuing import Continuation, continued
from pteron.llm.given import integer, integers, strings
from pteron.llm.pieces import Piece
from pteron.llm.sampling import Sampling
from pteron.llm.text_model import Overflow, TextModel


class LLM(TextModel):
    """A language model that reads and writes text.

    `path` is a program (.pte) or a folder made by `pteron export llm`; `tokenizer` a file, a folder or a
    Tokenizer, by default the one beside the program. What the model has read stays in its cache: a prompt
    that begins like an earlier one, as every turn of a conversation does, is read from where they part.
    `digits=2` decodes models of 4-bit weights a little quicker and less exactly (see `pteron.load`).
    `sampling` is how the model's authors would draw tokens (its generation_config.json), greedy where they
    say nothing: `llm.generate(prompt, sampling=llm.sampling)`.

    Streams are independent of each other, in one thread or several: each has a sequence with a cache of its
    own while it is open, 16 at most.
    """

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        stop_ids: Sequence[int] | None = None,
        overflow: Overflow = "error",
        resident: bool | None = None,
    ) -> Generator[Piece, None, None]:
        """Continue a text, or token ids, piece by piece. `statistics` tells what it took.

        Stop ids (by default the model's own) and a stop string, or several, end the generation and are not
        part of its text. A prompt that leaves no room in the context is an error, or with
        `overflow="truncate"` loses its oldest tokens.

        Equal prompts and settings give the same log-probabilities to the last bit, on one adapter, where the
        cache holds as much of the prompt: after `reset`, nothing. What is left to read is read by kernels for
        as many tokens, and these round differently.
        """
        count = integer("max_new_tokens", max_new_tokens)
        if sampling is not None and not isinstance(sampling, Sampling):
            raise InputError(f"sampling must be a Sampling, not {sampling!r}")
        ids = self.encode(prompt)
        fitted = self.fitted(ids, count, overflow)
        asked = Continuation(
            tuple(fitted),
            len(ids) - len(fitted),
            count,
            sampling or Sampling(),
            tuple(strings("stop", stop)),
            frozenset(self.eos_ids if stop_ids is None else integers("stop_ids", stop_ids)),
            resident,
        )
        return continued(self, asked)

    def chat(
        self,
        messages: Sequence[Message],
        *,
        max_new_tokens: int = 512,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        overflow: Overflow = "error",
        **variables: object,
    ) -> Generator[Piece, None, None]:
        """The assistant's answer to a conversation, rendered by the model's chat template."""
        ids = self.encode_chat(messages, **variables)  # type: ignore[arg-type]  # any name
        stop = [*strings("stop", stop), *self.chat_stops]
        return self.generate(
            ids, max_new_tokens=max_new_tokens, sampling=sampling, stop=stop, overflow=overflow
        )
