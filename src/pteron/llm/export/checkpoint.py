"""A checkpoint in the form that all readers here produce: a configuration, and tensors by place.

Tensors have the names of ExecuTorch's Llama module (`layers.0.attention.wq.weight`, ...), see
`llm/architectures/names.py`. Nothing but shapes is read before a program is written, so unsupported
checkpoints fail early.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.format.stored_tensor import StoredTensor
from pteron.llm.architectures.config import Config
from pteron.llm.architectures.family import Family
from pteron.llm.architectures.names import Names, place_tensors, stored_name
from pteron.llm.architectures.parts import EMBEDDING, OUTPUT, Decoder
from pteron.llm.architectures.vision import PREFIX as VISION
from pteron.llm.architectures.vision import Encoder
from pteron.llm.images.processor import PROCESSORS, ImageProcessor
from pteron.llm.network.network import MissingWeightError
from pteron.llm.network.options import IN_GROUPS, Options
from pteron.llm.network.program import BuiltProgram, build_program
from pteron.names.model_files import as_format_error

EMBEDDING_WEIGHT, OUTPUT_WEIGHT = f"{EMBEDDING}.weight", f"{OUTPUT}.weight"


@dataclass
class Vocabulary:
    """The tokenizer's files for the exported folder, and the ids that begin and end a text."""

    tokenizer: str
    files: dict[str, bytes]
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    adds_bos: bool = False
    chat_template: str | None = None


@dataclass
class CheckpointVision:
    """The part of a checkpoint that reads images."""

    encoder: Encoder
    tensors: dict[str, StoredTensor]  # by place
    processor: ImageProcessor


@dataclass
class Checkpoint:
    name: str
    config: Config  # in Hugging Face's terms
    decoder: Decoder
    tensors: dict[str, StoredTensor]  # by place
    context_length: int  # that the model was trained for
    vocabulary: Vocabulary
    licence: str | None = None
    notices: dict[str, bytes] = field(default_factory=dict)  # licence files, by name
    names: Names = field(default_factory=dict)  # of tensors in the file
    vision: CheckpointVision | None = None

    @property
    def vocabulary_size(self) -> int:
        return self.tensors[EMBEDDING_WEIGHT].rows

    @property
    def parameter_count(self) -> int:
        # A tied output matrix is the same object as the table.
        tensors = (*self.tensors.values(), *(self.vision.tensors.values() if self.vision else ()))
        return sum(prod(tensor.shape) for tensor in {id(t): t for t in tensors}.values())

    @property
    def has_groups(self) -> bool:
        """Whether matrices are integers in groups in the file."""
        return any(tensor.groups for tensor in self.tensors.values())

    def program(self, options: Options) -> BuiltProgram:
        """The program of the checkpoint; its weights are read when it is written. Raises for options that do
        not fit the checkpoint, and if the checkpoint lacks a weight or has one that its family does not
        use."""
        self._check(options)
        with as_config_error(self.name), as_named_error(self.name):  # parts meet settings of wrong types
            constants: dict[str, tuple[int | bool, ...]] = {"get_n_layers": (len(self.decoder.layers),)}
            if self.vocabulary.eos_ids:
                constants["get_eos_ids"] = self.vocabulary.eos_ids
            if self.vocabulary.bos_id is not None:
                constants["get_bos_id"] = (self.vocabulary.bos_id,)
            try:
                images = (self.vision.encoder, self.vision.tensors) if self.vision else None
                return build_program(self.decoder, self.tensors, options, constants, images)
            except MissingWeightError as error:
                name = stored_name(self.names, error.place)
                raise FormatError(f"the checkpoint has no tensor {name}" if name else str(error)) from None

    def _check(self, options: Options) -> None:
        options.check()
        has_own = options.quantize == IN_GROUPS and self.has_groups
        group = options.group_size if options.has_groups and not has_own else 1
        # Norms of heads, learned positions and short convolutions stay floats.
        shapes = {
            name: tensor.shape
            for name, tensor in self.tensors.items()
            if "norm" not in name and ".conv." not in name and not name.startswith("positions.")
        }
        if not options.has_grouped_layers:
            shapes = {EMBEDDING_WEIGHT: shapes[EMBEDDING_WEIGHT]}
        uneven = [name for name, shape in shapes.items() if len(shape) == 2 and shape[1] % group]
        if uneven:
            rows, columns = shapes[uneven[0]]
            raise InputError(
                f"group_size {group} does not divide the columns of {len(uneven)} weights, "
                f"such as {uneven[0]} with {rows} x {columns}"
            )


def assemble(
    name: str,
    stated: dict[str, Any],
    family: Family,
    tensors: Mapping[str, StoredTensor],
    names: Names | None,
    vocabulary: Vocabulary,
    image_settings: dict[str, Any] | None = None,
) -> Checkpoint:
    """A checkpoint of stored tensors. Without `names`, tensors are named by place already. The embedding
    table is the output matrix if the configuration says so, or does not say and there is no other.
    `image_settings` are those of the image processor, for families with a vision part."""
    with as_config_error(name), as_named_error(name):
        config = family.normalized(stated)
        context_length = int(config.get("max_position_embeddings") or family.context)
        layers = len(config.layers)
        if not 0 < layers <= len(tensors):
            raise FormatError(f"{layers} layers, but only {len(tensors)} weights")
        decoder = family.decoder(config)
        placed = dict(tensors) if names is None else place_tensors(tensors, names, config)
        vision = _vision(stated, family, placed, image_settings)
        if vision:  # adapters have the names of the whole model
            config = config.changed(model_type=stated["model_type"])
    if EMBEDDING_WEIGHT not in placed:
        raise FormatError(f"{name}: the checkpoint has no embedding table")
    if len(shape := placed[EMBEDDING_WEIGHT].shape) != 2:
        raise FormatError(f"{name}: the embedding table is {list(shape)}, not [tokens, columns]")
    tied = config.get("tie_word_embeddings")
    if tied is False and OUTPUT_WEIGHT not in placed:
        stored = next((key for key, rule in (names or {}).items() if rule == "output"), "output")
        raise FormatError(f"{name}: tie_word_embeddings is false, but the checkpoint has no {stored}.weight")
    if tied or OUTPUT_WEIGHT not in placed:
        placed[OUTPUT_WEIGHT] = placed[EMBEDDING_WEIGHT]
    return Checkpoint(
        name, config, decoder, placed, context_length, vocabulary, names=names or {}, vision=vision
    )


def _vision(
    config: dict[str, Any], family: Family, placed: dict[str, StoredTensor], settings: dict[str, Any] | None
) -> CheckpointVision | None:
    """The vision part of a checkpoint, whose tensors are taken out of `placed`."""
    if family.vision is None:
        return None
    if not settings:
        raise FormatError(
            "neither preprocessor_config.json nor processor_config.json says how the model reads images: add "
            "one of them from the model's repository"
        )
    processor = PROCESSORS[family.vision.processor]
    tiles = family.vision.tiles(config, processor.tile_size(settings))
    places = [place for place in placed if place.startswith(VISION)]
    return CheckpointVision(
        family.vision.encoder(config, tiles),
        {place: placed.pop(place) for place in places},
        processor.of_settings(settings, tiles),
    )


@contextmanager
def as_named_error(name: str) -> Iterator[None]:
    """Put the checkpoint's name before messages."""
    try:
        yield
    except UnsupportedError as error:
        raise UnsupportedError(f"{name}: {error}") from None
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None


@contextmanager
def as_config_error(name: str) -> Iterator[None]:
    """Turn errors while a configuration is read into a FormatError."""
    with as_format_error(f"{name}: its configuration is invalid"):
        try:
            yield
        except KeyError as error:
            raise FormatError(f"{name}: its configuration lacks {error}") from error
