"""LLM: a program and its tokenizer, text in and a stream of text out.

llm = LLM("stories15m")
for piece in llm.generate("Once upon a time"):
    print(piece.text, end="", flush=True)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, ClassVar, Unpack, overload

from pteron.errors import DeviceError
from pteron.gpu.fork import new_lock
from pteron.llm.engine import Answer, Engine, Stream
from pteron.llm.engine.answer import Job
from pteron.llm.engine.pipeline import decode_alone
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.steppers import stepper_for
from pteron.llm.output import Completion, Piece
from pteron.llm.reentrancy import device_guard, non_reentrant
from pteron.llm.request import (
    Conversation,
    GenerateOptions,
    Prompt,
    Request,
    batch_requests,
    chat_request,
    text_request,
    to_request,
)
from pteron.llm.text_model import TextModel

_WAITING = 1 << 20  # callers in the same process wait, and are not refused


class LLM(TextModel):
    """A language model that reads and writes text.

    `path` is a program (.pte), a folder made by `pteron export llm`, or the name of a model as in `pteron
    generate --model`; `tokenizer` a file, a folder or a Tokenizer, by default the one beside the program. The
    model keeps what it has read in its KV cache: a prompt that begins like an earlier one, as every turn of a
    conversation does, is read from the first different token on. `digits=2` decodes models of 4-bit weights a
    little faster and less exactly (see `pteron.load`). `sampling` is what the model's authors recommend (its
    generation_config.json), greedy if they recommend nothing: `llm.generate(prompt, sampling=llm.sampling)`.

    Generations are independent of each other, in one thread or several: each has a sequence with its own KV
    cache while it is open. There are at most `sequences` of them, and no more than fit into `cache_bytes` of
    GPU memory, each taking `sequence_bytes`; 16 if neither is given. Idle sequences keep what they have read
    until their memory is needed, the least recently used first. A prefix of 64 tokens or more that any of
    them has read, such as a system prompt, is copied on the GPU and not read again.
    """

    engine: Engine | None = None  # runs streams and batches; made for the first of them
    _is_closed = False
    _engine_lock: ClassVar = new_lock()

    def __call__(self, prompt: Prompt | Conversation, **options: Any) -> str:
        """The text that follows a prompt, or the answer to a conversation, as a string. Options are those of
        `generate` or of `chat`."""
        return "".join(piece.text for piece in self._run(to_request(self, prompt, options)))

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Generator[Piece, None, None]:
        """Continue a text, or token ids, piece by piece. `statistics` has the counts and times.

        Options and their defaults:

            max_new_tokens=256  the most tokens to generate
            stop=()             a string, or several, that ends the text and is not part of it
            stop_ids=None       token ids that end the text; None: the model's own
            overflow='error'    if the prompt is longer than the context; 'truncate' drops its oldest tokens
            sampling=None       a `Sampling`, how tokens are drawn; None: greedy
            grammar=None        a `Grammar` that the text follows, and ends with; `max_new_tokens` may cut the
                                text off before that
            resident=None       whether tokens are fed to the next step on the GPU; None: if the program can

        The fields of `Sampling` are options too, and override those of `sampling`:
        `temperature=0.7, top_p=0.9, seed=1`.

        Equal prompts and options give equal log-probabilities, bit for bit, on one adapter, if the KV cache
        holds the same part of the prompt: after `reset`, nothing. The rest of the prompt is read by kernels
        for its number of tokens, and these round differently.
        """
        return self._run(text_request(self, prompt, **options))

    @overload
    def chat(
        self,
        messages: Conversation,
        *,
        tools: Sequence[object] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generator[Piece, None, None]: ...

    @overload
    def chat(
        self, messages: Conversation, *, tools: Sequence[object] | None = None, **options: Any
    ) -> Generator[Piece, None, None]: ...

    def chat(
        self, messages: Conversation, *, tools: Sequence[object] | None = None, **options: Any
    ) -> Generator[Piece, None, None]:
        """The assistant's answer to a conversation, rendered by the model's chat template.

        Options are those of `generate`, with `max_new_tokens=512`; `tools` and all other names are variables
        of the template, such as `enable_thinking=False`.
        """
        return self._run(chat_request(self, messages, tools=tools, **options))

    def stream(self, prompt: Prompt | Conversation, **options: Any) -> Stream:
        """The same pieces for an event loop:

            async for piece in llm.stream("Once upon a time", temperature=0.7): ...

        Options are those of `generate`, or of `chat` for a list of messages; wrong ones raise here. A stream
        that is left early, by `break` or a cancelled task, frees its sequence. By default 16 streams run at
        once, and further ones wait.
        """
        return Stream(self._submit(to_request(self, prompt, options)))

    def generate_batch(self, prompts: Sequence[Prompt | Conversation], **options: Any) -> list[Completion]:
        """The texts that follow several prompts, decoded side by side with the same options, in the order of
        the prompts."""
        requests = batch_requests(self, prompts, options)
        answers = [self._submit(request) for request in requests]
        return [Completion.of(answer, answer.statistics) for answer in answers]

    def _run(self, request: Request) -> Generator[Piece, None, None]:
        """Decode a request on the calling thread. It starts at the first `next`, and holds a sequence of the
        pool until it ends or is closed."""
        lease, job = self.pool.lease(request.ids), Job(request)
        try:
            running = RunningRequest.begin(job, lease, self.tokenizer, frozenset(self.eos_ids))
        except BaseException:
            lease.close()
            raise
        self.statistics = job.statistics
        try:
            tokens = decode_alone(running, stepper_for(lease.model, request.resident))
            try:
                for drawn in tokens:
                    yield from running.take((drawn,))
            finally:
                tokens.close()
        finally:
            running.close()
            running.release()

    def _submit(self, request: Request) -> Answer:
        """Run a request on the engine's thread."""
        with non_reentrant(self._engine_lock):
            if self._is_closed:
                raise DeviceError("the model is closed")
            if self.engine is None or not self.engine.is_alive:
                self.engine = Engine(self.without_engine(), waiting=_WAITING)
            return self.engine.submit(request)

    def close(self) -> None:
        device_guard(self.model.device)  # raises in a re-entrant call, before anything is freed
        with non_reentrant(self._engine_lock):
            self._is_closed = True
            engine, self.engine = self.engine, None
        if engine is not None:
            engine.close()
        super().close()
