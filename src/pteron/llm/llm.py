"""LLM: a program with its tokenizer. In: text. Out: a stream of text.

llm = LLM("stories15m")
for piece in llm.generate("Once upon a time"):
    print(piece.text, end="", flush=True)
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import fields
from inspect import Parameter, signature
from typing import Any, ClassVar, Unpack, cast
from weakref import proxy

from pteron.errors import DeviceError, InputError
from pteron.gpu.fork import new_lock
from pteron.llm.engine import Answer, Engine, Stream
from pteron.llm.engine.answer import Job
from pteron.llm.engine.running import RunningRequest
from pteron.llm.engine.steppers import stepper_for
from pteron.llm.engine.turns import run_alone
from pteron.llm.load_options import LoadOptions, check_no_others
from pteron.llm.output import Completion, Piece
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
from pteron.llm.text_model import LoadArguments, TextModel
from pteron.llm.tokenizers.tokenizer import Tokenizer

_WAITING = 1 << 20  # queue length: callers in the same process always wait and are never rejected


class LLM(TextModel):
    """A language model that reads and writes text.

    `path` is one of these: a program (.pte) or the folder that `pteron export llm` made, a Hugging Face
    checkpoint's folder, a GGUF file, a built-in model ("smollm2", "stories15m"), or a model of a hub as
    "owner/name", "owner/name:Q4_K_M" or "owner/name@revision". What is not a program is built into one at its
    first use. `model` is another name of this argument.

    `tokenizer` is a file, a folder or a Tokenizer; the default is the tokenizer in the program's folder.
    `device` is the GPU, by part of its name. On GPUs whose matrix cores are used, models with weights of 4 or
    8 bits compute with `products="f16"` and `digits=2`, as other runtimes do; `products="f32"` is as exact as
    f32 (see `pteron.load`).
    `speculate="lookup"`, or the name of a smaller model with the same tokenizer, proposes tokens, and one
    step of the model verifies them: the same text in fewer steps (docs/language-models.md).
    `adapters` are LoRA adapters by name, each a PEFT folder, a GGUF file or "owner/name" of a hub:
    `LLM("smollm2", adapters={"sql": "adapters/sql"})`, then `llm.generate(prompt, adapter="sql")`. Requests
    with different ones run as one batch.

    The attribute `sampling` has the settings that the model's authors recommend (generation_config.json), or
    greedy if they recommend none: `llm.generate(prompt, sampling=llm.sampling)`.

    `context` is the number of tokens that a KV cache holds, up to the model's own; the default is that of the
    program. `cache` is the type of its elements, "f32", "f16", which takes half the memory, or "int8", which
    takes 28 %; the default is f16 for models with weights of 4 or 8 bits on GPUs with 16-bit floats, and
    elsewhere the program's. Layers with a sliding window keep the last tokens only, in
    rings; with `rings=False` they keep all, so that any prefix of a long text can be reused.

    The model keeps processed tokens in its KV cache. If a prompt begins like an earlier one, as every turn of
    a conversation does, prefill starts at the first different token.

    Generations are independent of each other, in one thread or several: while it is open, each has a sequence
    with its own KV cache, which takes `sequence_bytes` of GPU memory. The limit on sequences is `sequences`,
    and the number that fits into `cache_bytes`; 16 if neither is given. Idle sequences keep their cache until
    the memory is needed; the least recently used one is reused first. A prefix of 64 tokens or more that any
    sequence has in its cache, such as a system prompt, is copied on the GPU instead of computed again.

    On a GPU, plans for prompts of other lengths are made in the background after loading, in pauses between
    generations; `warm=False` makes them when they are needed.
    """

    engine: Engine | None = None  # runs streams and batches; made at the first use
    _is_closed = False
    _engine_lock: ClassVar = new_lock()

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
        *,
        model: str | os.PathLike[str] | None = None,
        **options: Unpack[LoadArguments],
    ) -> None:
        check_no_others(options, {"path", "tokenizer", "model", *LoadArguments.__optional_keys__})
        given = path if model is None else model
        if given is None or (path is not None and model is not None):
            twice = "" if given is None else ", once: `model` is another name of the first argument"
            raise InputError(f'{type(self).__name__} takes a model, such as "smollm2" or a path{twice}')
        super().__init__(given, LoadOptions(tokenizer=tokenizer, **options))

    def __call__(self, prompt: Prompt | Conversation, **options: Any) -> str:
        """Return the continuation of a prompt, or the answer to a conversation, as a string. Options are
        those of `generate` or `chat`."""
        return "".join(piece.text for piece in self._run(to_request(self, prompt, options)))

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Generator[Piece, None, None]:
        """Continue a text, or token ids, and yield the result piece by piece. Afterwards `statistics` has the
        counts and times.

        Options and their defaults:

            max_new_tokens=256  the most tokens to generate
            stop=()             a string, or several, that ends the text and is not part of it
            stop_ids=None       token ids that end the text; None: the model's own
            overflow='error'    if the prompt is longer than the context; 'truncate' drops its oldest tokens
            sampling=None       a `Sampling`, how tokens are drawn; None: greedy
            grammar=None        what the text follows, and ends with: a `Grammar`, a dict (a JSON schema) or a
                                regular expression (`re.compile("yes|no")`); `max_new_tokens` may cut the text
                                off before that
            adapter=None        the name of a LoRA adapter that the model was loaded with; None: none
            resident=None       whether tokens are fed to the next step on the GPU; None: if the program can
            speculate=True      use the model's speculative decoding, if it has any

        The fields of `Sampling` are options too, and override those of `sampling`:
        `temperature=0.7, top_p=0.9, seed=1`.

        On one GPU, equal prompts and options give bit-identical log-probabilities if the KV cache holds
        the same part of the prompt; after `reset` it holds nothing. Otherwise the results may differ in
        rounding, because prefill uses different kernels for different numbers of tokens.
        """
        return self._run(text_request(self, prompt, **options))

    def chat(
        self, messages: Conversation, *, tools: Sequence[object] | None = None, **options: Any
    ) -> Generator[Piece, None, None]:
        """Answer a conversation, which the model's chat template renders, and yield the answer piece by
        piece.

        Options are those of `generate`, but the default is `max_new_tokens=512`. `tools` and all other names,
        such as `enable_thinking=False`, are passed to the template as variables. Content may be a list of
        parts, {"type": "text", "text": ...} and, for a model that reads images, {"type": "image", "image":
        path, Pillow image or array}, or {"type": "image_url", "image_url": {"url": "data:..."}}.
        """
        return self._run(chat_request(self, messages, tools=tools, **options))

    def stream(self, prompt: Prompt | Conversation, **options: Any) -> Stream:
        """The pieces of `generate` or `chat` as an async iterator:

            async for piece in llm.stream("Once upon a time", temperature=0.7): ...

        Options are those of `generate`, or of `chat` for a list of messages; an invalid option raises an
        error here. Leaving a stream early, by `break` or by cancelling the task, frees its sequence. By
        default 16 streams run at once, and further ones wait.
        """
        return Stream(self._submit(to_request(self, prompt, options)))

    def generate_batch(self, prompts: Sequence[Prompt | Conversation], **options: Any) -> list[Completion]:
        """Continue several prompts in one batch with the same options. `adapter` may also be a list, with the
        name of a LoRA adapter or None for each prompt. Returns the completions in the order of the
        prompts."""
        requests = batch_requests(self, prompts, options)
        answers = [self._submit(request) for request in requests]
        return [Completion.of(answer, answer.statistics) for answer in answers]

    def _run(self, request: Request) -> Generator[Piece, None, None]:
        """Run a request on the calling thread. The generator leases a sequence from the pool at its first
        `next`, and releases it when it ends or is closed."""
        lease, job = self.pool.lease(request.ids, request.adapter), Job(request)
        try:
            stop_ids = frozenset(self.eos_ids)
            running = RunningRequest.begin(
                job, lease, self.tokenizer, stop_ids, self.speculator, self.image_prefill
            )
        except BaseException:
            lease.close()
            raise
        self.statistics = job.statistics
        try:
            tokens = run_alone(running, stepper_for(lease.model, request.resident))
            try:
                for _, pieces in tokens:
                    yield from pieces
            finally:
                tokens.close()
        finally:
            running.close()
            running.release()

    def _submit(self, request: Request) -> Answer:
        """Run a request on the engine's thread."""
        with self._engine_lock:
            if self._is_closed:
                raise DeviceError("the model is closed")
            if self.engine is None or not self.engine.is_alive:
                # An engine that referred to this object would form a cycle with it and keep both alive.
                self.engine = Engine(cast(TextModel, proxy(self)), waiting=_WAITING)
            return self.engine.submit(request)

    def close(self) -> None:
        with self._engine_lock:
            self._is_closed = True
            engine, self.engine = self.engine, None
        if engine is not None:
            engine.close()
        super().close()


# Help and notebooks show each option, in place of **options.
_shown = signature(LLM.__init__)
*_own, _ = _shown.parameters.values()
_options = [
    Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
    for field in fields(LoadOptions)
    if field.name in LoadArguments.__optional_keys__
]
LLM.__init__.__signature__ = _shown.replace(parameters=[*_own, *_options])  # type: ignore[attr-defined]
