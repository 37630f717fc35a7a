"""Images in a conversation -> ids in its prompt.

Each row of an image has an id below 0, made of the image's content and the row's number. So prompts are equal
only if their images are, and the prefix cache needs to know nothing of images.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, InputError, UnsupportedError
from pteron.llm.chat import Message, render
from pteron.llm.images.load import PIXELS_MAX, load_part
from pteron.llm.images.processor import ImageProcessor

IMAGE_PARTS = ("image", "image_url")  # types of parts of a message
_ROW_BITS, _KEY_BYTES = 16, 12
ROWS_MAX = (1 << _ROW_BITS) - 1  # of an image
_PROBE = "pteron probe"
_MARK = f"[image {secrets.token_hex(4)}]"  # no text has it by chance or by guessing


@dataclass(frozen=True, eq=False)
class PromptImage:
    """An image of a prompt: its tiles [count, size, size, 3], with `rows` rows of the language model each,
    and its text."""

    tiles: npt.NDArray[np.uint8] = field(repr=False)
    rows: int
    text: str = field(repr=False)
    key: int = field(init=False)  # follows from the content

    def __post_init__(self) -> None:
        digest = hashlib.sha256(f"{self.tiles.shape} ".encode())
        digest.update(np.ascontiguousarray(self.tiles).data)
        object.__setattr__(self, "key", int.from_bytes(digest.digest()[:_KEY_BYTES], "little"))
        if len(self) > ROWS_MAX:
            raise UnsupportedError(f"the image has {len(self)} rows; at most {ROWS_MAX} are supported")

    def __len__(self) -> int:
        """Rows of all tiles."""
        return len(self.tiles) * self.rows

    @property
    def ids(self) -> list[int]:
        return [-1 - (self.key << _ROW_BITS | row) for row in range(len(self))]


def key_and_row(id: int) -> tuple[int, int]:
    """The image of an id below 0, and the number of the row."""
    value = -1 - id
    return value >> _ROW_BITS, value & ROWS_MAX


def has_images(ids: Sequence[int]) -> bool:
    """Whether some ids are rows of images."""
    return min(ids, default=0) < 0


def text_start(ids: Sequence[int]) -> int:
    """Where the text behind the last image begins; 0 without images."""
    return next(at for at in range(len(ids), 0, -1) if ids[at - 1] < 0) if has_images(ids) else 0


def image_parts(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    """The parts of messages that are images; none if they are no messages."""
    listed = messages if isinstance(messages, (list, tuple)) else ()
    return [
        part
        for message in listed
        if isinstance(message, Mapping) and isinstance(message.get("content"), (list, tuple))
        for part in message["content"]
        if isinstance(part, Mapping) and part.get("type") in IMAGE_PARTS
    ]


def read_images(messages: Sequence[Message], processor: ImageProcessor) -> Iterator[PromptImage]:
    """The images of messages, in order. An error says which one it is."""
    pixels_left = PIXELS_MAX
    for number, part in enumerate(image_parts(messages), 1):
        try:
            pixels = load_part(part, pixels_left)
            tiles = processor.cut(pixels)
            pixels_left -= pixels.size // 3
            image = PromptImage(tiles.pixels, processor.tiles.rows, tiles.text)
        except (InputError, FormatError) as error:
            raise type(error)(f"image {number}: {error}") from None
        yield image


def for_template(messages: Sequence[Message], template: str | None) -> Sequence[Message]:
    """Messages as a chat template takes them: an image is {"type": "image"}, and all content is a list of
    parts if the template takes nothing else."""
    if isinstance(messages, str) or not all(isinstance(message, Mapping) for message in messages):
        return messages  # `render` says what is wrong
    always = _takes_parts_only(template)
    return [
        {**message, "content": _template_content(message.get("content"), always=always)}
        if "content" in message
        else dict(message)
        for message in messages
    ]


def _template_content(content: Any, *, always: bool) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if always else content
    if not isinstance(content, (list, tuple)):
        return content
    is_image = [isinstance(part, Mapping) and part.get("type") in IMAGE_PARTS for part in content]
    return [{"type": "image"} if is_one else part for part, is_one in zip(content, is_image, strict=True)]


@lru_cache(maxsize=8)
def _takes_parts_only(template: str | None) -> bool:
    """Whether a template loses content that is a string."""
    try:
        return _PROBE not in render([{"role": "user", "content": _PROBE}], template)
    except InputError:
        return True


def marked(template: str | None, token: str) -> str | None:
    """A chat template that writes a mark for each image instead of `token`, which texts may have too."""
    return template and template.replace(token, _MARK)


def without_marks(text: str, token: str) -> str:
    """A rendered conversation, as its chat template is meant to write it."""
    return text.replace(_MARK, token)


def with_rows(text: str, images: Sequence[PromptImage], token: str) -> tuple[str, list[bool]]:
    """A rendered conversation with all tokens of its images in place of their marks, and for each time that
    it has `token`, whether this is a row of an image."""
    first, *others = text.split(_MARK)
    if len(others) != len(images):
        raise InputError(
            f"the conversation has {len(images)} images, but its chat template writes {token} for "
            f"{len(others)}"
        )
    is_row = [False] * first.count(token)
    for image, after in zip(images, others, strict=True):
        is_row += [True] * len(image) + [False] * after.count(token)
    rows = (image.text + after for image, after in zip(images, others, strict=True))
    return first + "".join(rows), is_row


def with_image_ids(
    ids: Sequence[int], images: Sequence[PromptImage], token: int, is_row: Sequence[bool]
) -> tuple[int, ...]:
    """Ids of a prompt with those of its images' rows in place of the token of any row. `is_row` says for each
    such token whether it is one."""
    rows = [id for image in images for id in image.ids]
    if sum(is_row) != len(rows) or sum(id == token for id in ids) != len(is_row):
        raise InputError(f"the images of the prompt have {len(rows)} rows, but its text has another number")
    if ids[-1] == token and is_row[-1]:
        raise InputError("the prompt ends with an image: it needs a text behind it")
    remaining, places = iter(rows), iter(is_row)
    return tuple(next(remaining) if id == token and next(places) else id for id in ids)
