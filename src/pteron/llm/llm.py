"""LLM: a program and its tokenizer, text in and a stream of text out.

llm = LLM("stories15m")
for piece in llm.generate("Once upon a time"):
    print(piece.text, end="", flush=True)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Unpack, overload

from pteron.llm.continuing import continued
from pteron.llm.output import Completion, Piece
from pteron.llm.reentrancy import device_guard
from pteron.llm.request import Conversation, Prompt, Settings, all_asked, answer_asked, asked, text_asked
from pteron.llm.side_by_side import LazyEngine
from pteron.llm.streaming import Stream
from pteron.llm.text_model import TextModel


class LLM(TextModel):
    """A language model that reads and writes text.

    `path` is a program (.pte), a folder made by `pteron export llm`, or the name of a model as in
    `pteron generate --model`; `tokenizer` a file, a folder or a Tokenizer, by default the one beside the
    program. What the model has read stays in its cache: a prompt that begins like an earlier one, as every
    turn of a conversation does, is read from where they part.
    `digits=2` decodes models of 4-bit weights a little quicker and less exactly (see `pteron.load`).
    `sampling` is how the model's authors would draw tokens (its generation_config.json), greedy where they
    say nothing: `llm.generate(prompt, sampling=llm.sampling)`.

    Streams are independent of each other, in one thread or several: each has a sequence with a cache of its
    own while it is open. There are at most `sequences` of them, and no more than `cache_bytes` of GPU memory
    are enough for, each taking `sequence_bytes`; where neither is given, 16. Those that no stream uses keep
    what they have read until their memory is needed, the one used last the longest. A beginning of 64 tokens
    or more that any of them has read, such as a system prompt, is copied on the GPU and not read again.
    """

    def __call__(self, prompt: Prompt | Conversation, **settings: Any) -> str:
        """The text that follows a prompt, or the answer to a conversation, as a string. Settings are those of
        `generate` or of `chat`."""
        return "".join(piece.text for piece in continued(self, asked(self, prompt, settings)))

    def generate(self, prompt: Prompt, **settings: Unpack[Settings]) -> Generator[Piece, None, None]:
        """Continue a text, or token ids, piece by piece. `statistics` tells what it took.

        Settings are given by name. These hold unless others are given:

            max_new_tokens=256  as many at most
            stop=()             a string, or several, that ends the text and is not part of it
            stop_ids=None       tokens that do; the model's own, unless there are others
            overflow='error'    where the prompt leaves no room in the context; with 'truncate' it loses its
                                oldest tokens
            sampling=None       a `Sampling`, how tokens are drawn: greedily, unless there is one
            grammar=None        a `Grammar`: the text is one that it allows, and ends where that does; one
                                that `max_new_tokens` cuts off is the beginning of one
            resident=None       whether steps follow one another on the GPU without the host: where they can

        The fields of `Sampling` can be given too, with or without one, and count instead of its own:
        `temperature=0.7, top_p=0.9, seed=1`.

        Equal prompts and settings give the same log-probabilities to the last bit, on one adapter, where the
        cache holds as much of the prompt: after `reset`, nothing. What is left to read is read by kernels for
        as many tokens, and these round differently.
        """
        return continued(self, text_asked(self, prompt, **settings))

    @overload
    def chat(
        self, messages: Conversation, *, tools: Sequence[object] | None = None, **settings: Unpack[Settings]
    ) -> Generator[Piece, None, None]: ...

    @overload
    def chat(
        self, messages: Conversation, *, tools: Sequence[object] | None = None, **settings: Any
    ) -> Generator[Piece, None, None]: ...

    def chat(
        self, messages: Conversation, *, tools: Sequence[object] | None = None, **settings: Any
    ) -> Generator[Piece, None, None]:
        """The assistant's answer to a conversation, rendered by the model's chat template.

        Settings are those of `generate`, but for `max_new_tokens=512`; `tools` and all other names are
        variables of the template, as `enable_thinking=False`.
        """
        return continued(self, answer_asked(self, messages, tools=tools, **settings))

    def stream(self, prompt: Prompt | Conversation, **settings: Any) -> Stream:
        """The same pieces in an event loop, which goes on between them:

            async for piece in llm.stream("Once upon a time", temperature=0.7): ...

        Settings are those of `generate`, or of `chat` for a list of messages. Wrong ones are refused here.
        A stream that is left early, by `break` or a cancelled task, frees its sequence. However many there
        are, 16 are served side by side by default, and others wait for their turn.
        """
        return Stream(self._engine.submit(asked(self, prompt, settings)))

    def generate_batch(self, prompts: Sequence[Prompt | Conversation], **settings: Any) -> list[Completion]:
        """The texts that follow several prompts, made side by side with one set of settings, in the prompts'
        order."""
        wanted = all_asked(self, prompts, settings)
        answers = [self._engine.submit(each) for each in wanted]
        return [Completion.of(answer, answer.statistics) for answer in answers]

    @property
    def _engine(self) -> LazyEngine:
        kept = vars(self)
        if "_made" not in kept:
            kept.setdefault("_made", LazyEngine(self.alike()))  # the same for all threads
        made: LazyEngine = kept["_made"]
        return made

    def close(self) -> None:
        device_guard(self.model.device)  # refused in the midst of it, before anything ends
        self._engine.close()
        super().close()
