"""TextModel: a program and its tokenizer, and the pool of sequences that generations share.

In: a program or a folder, text or messages. Out: token ids that fit the context.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import Literal, Self, TypedDict, get_args

from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.folders import path_of
from pteron.format.records import ProgramFile
from pteron.gpu import Device
from pteron.graph import Graph
from pteron.llm.cache.options import CacheOptions, CacheType, longest_context
from pteron.llm.cache.pool import SequencePool
from pteron.llm.cache.saved import layout_of, read_saved, write_saved
from pteron.llm.chat import Message, render
from pteron.llm.engine.speculation import LOOKUP, Speculator
from pteron.llm.images.prefill import ImagePrefill
from pteron.llm.images.processor import processor_of_manifest
from pteron.llm.images.prompt import (
    PromptImage,
    for_template,
    image_parts,
    marked,
    read_images,
    with_image_ids,
    with_rows,
    without_marks,
)
from pteron.llm.load_options import LoadOptions
from pteron.llm.model import LanguageModel
from pteron.llm.names.model_names import locate_program
from pteron.llm.names.program_cache import longest_contexts
from pteron.llm.network.options import IMAGE
from pteron.llm.output import Statistics
from pteron.llm.sampling import Sampling
from pteron.llm.sampling_options import recommended_options
from pteron.llm.tokenizers.load import load_tokenizer
from pteron.llm.tokenizers.tokenizer import Tokenizer, check_same_tokens
from pteron.names.model_files import GENERATION, MANIFEST, ModelFolder, as_format_error
from pteron.runtime import load
from pteron.runtime.program import Adapt
from pteron.runtime.specs import table

Overflow = Literal["error", "truncate"]


class TextModel:
    """A language model and its tokenizer, loaded on a device."""

    speculator: Speculator | None = None
    image_prefill: ImagePrefill | None = None  # of a model that reads images
    _draft: TextModel | None = None  # a draft model that this object has loaded

    def __init__(self, path: str | os.PathLike[str], options: LoadOptions) -> None:
        options = replace(options, model=str(path))
        self.name = str(path)
        located = locate_program(path, context=None if options.limited else options.context)
        folder, data = located.folder, options.data or located.data
        self.sampling = _recommended(folder)
        self.pooling = folder.pooling
        adapters = options.adapters
        adapt = _with_adapters(options, adapters, folder) if adapters else options.adapt
        self.program = load(
            located.program,
            data,
            options.device,
            digits=options.digits,
            products=options.products,
            adapt=adapt,
        )
        with ExitStack() as on_error:
            on_error.callback(self.program.close)
            self.program.precision = options.precision(self.program)
            given = options.tokenizer
            self.tokenizer = given if isinstance(given, Tokenizer) else load_tokenizer(given or folder)
            self.model = LanguageModel(self.program, context=options.length(self.program.file))
            self.model.adapters = tuple(adapters or ())
            self.image_prefill = self._image_prefill(folder)
            self.longest_context = max(longest_context(self.program.file), *longest_contexts(folder))
            options.check(self.program.device)
            self.statistics = Statistics()
            self.pool = SequencePool(self.model, options.sequences, options.cache_bytes)
            on_error.pop_all()
            on_error.callback(self.close)
            if options.speculate is not None:
                self.speculator = self._speculate(options.speculate, options.cache)
            # The cores of a software adapter are busy.
            if options.warm and not self.program.device.target.is_cpu:
                self.pool.warm()
            on_error.pop_all()

    def __repr__(self) -> str:
        adapters = f", adapters {', '.join(self.adapters)}" if self.adapters else ""
        what = f"{type(self).__name__} {self.name!r} on {self.program.device.name}"
        return f"<pteron.llm.{what}, context {self.context:,}{adapters}>"

    def _repr_html_(self) -> str:
        memory = ", ".join(
            f"{kind} {size / 1e6:,.1f} MB" for kind, size in self.model.method.gpu_bytes.items()
        )
        changed = {
            field.name: value
            for field in fields(self.sampling)
            if (value := getattr(self.sampling, field.name)) != field.default
        }
        rows = [
            ("program", f"{self.program.file.name}, {self.program.file.size / 1e6:,.1f} MB"),
            ("device", self.program.device.name),
            ("context", f"{self.context:,} tokens; vocabulary {self.model.vocabulary:,}"),
            ("GPU memory", f"{memory}; {self.sequence_bytes / 1e6:,.1f} MB for each further sequence"),
            ("sampling", ", ".join(f"{name}={value}" for name, value in changed.items()) or "greedy"),
            ("LoRA adapters", ", ".join(self.adapters) or "none"),
        ]
        return table(f"{type(self).__name__} {self.name}", ("", ""), rows)

    @property
    def context(self) -> int:
        """The number of tokens that a KV cache holds; 0 if the program does not state it."""
        return self.model.context

    @property
    def sequence_bytes(self) -> int:
        """GPU memory of one more sequence."""
        return self.model.sequence_bytes

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the LoRA adapters that the model was loaded with."""
        return self.model.adapters

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The token ids that end a text."""
        return self.tokenizer.eos_ids or self.model.eos_ids

    @property
    def chat_stops(self) -> tuple[str, ...]:
        """The stop strings for prompts of `encode_chat`, in addition to `eos_ids`."""
        return ("\nUser:",) if self.tokenizer.chat_template is None else ()

    def encode(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        """The token ids of a prompt, with the BOS token if the model expects one."""
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt, bos=self.tokenizer.adds_bos)
        ids = self.model.ids(prompt)
        opening = self.tokenizer.bos_id if self.tokenizer.bos_id is not None else self.model.bos_id
        if not ids and opening is not None:
            ids = self.model.ids([opening])
        if not ids:
            raise InputError("the prompt is empty, and the model has no BOS token to start from")
        return tuple(ids)

    def encode_chat(
        self, messages: Sequence[Message], tools: Sequence[object] | None = None, **variables: object
    ) -> tuple[int, ...]:
        """The token ids of a conversation as the model's chat template renders it, up to the start of the
        assistant's answer.

        `tools` and all other variables are passed to the template, such as `enable_thinking=False`.
        """
        text = self.render_chat(messages, tools, **variables)
        return self.encode_rendered(text, tuple(self.read_images(messages)))

    def render_chat(
        self, messages: Sequence[Message], tools: Sequence[object] | None = None, **variables: object
    ) -> str:
        """The text of `encode_chat`, before it is encoded. Images are marks (`shown`)."""
        tokenizer = self.tokenizer
        template = tokenizer.chat_template
        if self.image_prefill is not None:
            has_parts = bool(image_parts(messages))
            messages = for_template(messages, template)
            template = marked(template, self.image_prefill.processor.token) if has_parts else template
        bos, eos = tokenizer.bos_eos
        return render(messages, template, bos=bos, eos=eos, tools=tools, **variables)  # type: ignore[arg-type]  # any name

    def shown(self, text: str) -> str:
        """The text of `render_chat` with the token of images in place of their marks."""
        prefill = self.image_prefill
        return text if prefill is None else without_marks(text, prefill.processor.token)

    @property
    def reads_images(self) -> bool:
        """Whether messages may have images."""
        return self.image_prefill is not None

    def read_images(self, messages: Sequence[Message]) -> Iterator[PromptImage]:
        """The images of a conversation, for `encode_rendered`, each read when it is asked for."""
        if not image_parts(messages):
            return iter(())
        if self.image_prefill is None:
            raise InputError(
                f"{self.name} reads no images: its program has no vision part, as those of Idefics 3 and "
                "SmolVLM have (docs/language-models.md)"
            )
        return read_images(messages, self.image_prefill.processor)

    def encode_rendered(self, text: str, images: Sequence[PromptImage] = ()) -> tuple[int, ...]:
        """The token ids of a text that a chat template rendered: control tokens in it are recognised. Rows of
        images have ids below 0 (llm/images/prompt.py)."""
        prefill, is_row = self.image_prefill, list[bool]()
        if prefill is not None and images:
            text, is_row = with_rows(text, images, prefill.processor.token)
        ids = self.encode(self.tokenizer.encode(text, bos=self.tokenizer.adds_bos, special=True))
        return with_image_ids(ids, images, prefill.token, is_row) if prefill is not None and images else ids

    def fit_to_context(
        self, ids: Sequence[int], max_new_tokens: int, overflow: Overflow = "error"
    ) -> list[int]:
        """The prompt if it fits the context; otherwise an error, or with overflow="truncate" its last tokens,
        which leave room for `max_new_tokens`. A BOS token stays."""
        ids, context = list(ids), self.model.context
        if overflow not in get_args(Overflow):
            raise InputError(f'overflow must be "error" or "truncate", not {overflow!r}')
        if not context or len(ids) <= context:
            return ids
        if overflow == "error":
            longer = f"load the model with context= (--context) up to {self.longest_context}, "
            raise InputError(
                f"the prompt has {len(ids)} tokens, the context holds {context}; shorten it, "
                f"{longer if self.longest_context > context else ''}or drop the oldest with "
                'overflow="truncate" (--overflow truncate)'
            )
        kept = max(1, context - max_new_tokens)
        opening = ids[:1] if ids[0] == self.tokenizer.bos_id and kept > 1 else []
        return opening + ids[len(ids) - kept + len(opening) :]

    def _image_prefill(self, folder: ModelFolder) -> ImagePrefill | None:
        """What reads images, if the program in a folder has a vision part."""
        settings = folder.manifest.get("vision")
        if not isinstance(settings, dict) or IMAGE not in self.program:
            return None
        with as_format_error(f"{folder.path / MANIFEST}: vision"):
            processor = processor_of_manifest(settings)
        token = self.tokenizer.token_id(processor.token)
        if token is None:
            raise FormatError(f"{self.tokenizer.name} has no token {processor.token}, which images need")
        return ImagePrefill(self.model, processor, token)

    def _speculate(self, draft: object, cache: CacheType | None) -> Speculator:
        """Speculative decoding by prompt lookup ("lookup"), or with a draft model: one that is loaded, or its
        name. A model by name is loaded with the same context, or its longest, and the same type of cache."""
        if draft == LOOKUP:
            return Speculator(self.model)
        if not isinstance(draft, (str, os.PathLike, TextModel)):
            raise InputError(f'speculate must be "lookup", a smaller model or an LLM, not {draft!r}')
        if not isinstance(draft, TextModel):
            options = LoadOptions(
                self.model.context or None,
                cache,
                limited=True,
                device=self.model.device,
                sequences=self.pool.sequences_max,
            )
            draft = self._draft = TextModel(draft, options)
        check_same_tokens(self.tokenizer, draft.tokenizer)
        if not draft.model.is_resident or not draft.model.can_rewind:
            raise UnsupportedError(
                f"{draft.program.file.name} cannot be a draft model: its steps pass through the host, or its "
                "state cannot be rewound"
            )
        return Speculator(self.model, draft.pool)

    def save(self, path: str | os.PathLike[str], prompt: str | Sequence[int] | None = None) -> int:
        """Write the KV cache of one sequence to a file: the longest cached prefix of `prompt` or, without a
        prompt, all tokens of the sequence that was used last. Returns the number of tokens.

        The file is replaced atomically. Another process with the same program continues from it after
        `restore`.
        """
        layout = layout_of(self.model)
        cached = self.pool.rows(None if prompt is None else self.encode(prompt))
        write_saved(path_of(path), layout, cached)
        return len(cached.tokens)

    def restore(self, path: str | os.PathLike[str]) -> int:
        """Load a file that `save` wrote and return its number of tokens. The prefill of a prompt that begins
        with these tokens starts after them. A damaged file, or a file of another program, is a
        FormatError."""
        cached = read_saved(path_of(path), layout_of(self.model))
        self.pool.restore(cached)
        return len(cached.tokens)

    def reset(self) -> None:
        """Clear the KV caches. Open generations are not affected."""
        self.pool.clear()

    def close(self) -> None:
        """Free the GPU memory. Open generations end with an error."""
        if self.speculator:
            self.speculator.close()
        if self._draft:
            self._draft.close()
        self.pool.close()
        if self.image_prefill:
            self.image_prefill.close()
        self.model.sampler_sessions.clear()
        self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LoadArguments(TypedDict, total=False):
    """The options that `LLM` takes by keyword, for type checkers."""

    data: Sequence[str | os.PathLike[str]]
    device: Device | str | None
    digits: int | None
    products: str | None
    sequences: int | None
    cache_bytes: int | None
    context: int | None
    cache: CacheType | None
    rings: bool
    speculate: str | os.PathLike[str] | TextModel | None
    adapters: Mapping[str, str | os.PathLike[str]] | None
    warm: bool


def _with_adapters(
    options: CacheOptions, paths: Mapping[str, str | os.PathLike[str]], folder: ModelFolder
) -> Adapt:
    from pteron.llm.adapters import Adapters

    adapters = Adapters.read(paths, folder)

    def adapt(file: ProgramFile, graph: Graph) -> Graph:
        adapted = options.adapt(file, graph)
        is_decoder = len(graph.inputs) > 1  # tokens and their position; a vision encoder has patches
        return adapters.add_to(adapted) if is_decoder else adapted

    return adapt


def _recommended(folder: ModelFolder) -> Sampling:
    try:
        return Sampling(**recommended_options(folder.read(GENERATION)))
    except InputError as error:
        raise FormatError(f"{folder.path / GENERATION}: {error}") from None
