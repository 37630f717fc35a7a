"""Images in a conversation -> ids in its prompt.

Each row of an image has an id below 0, made of the image's content and the row's number. So prompts are equal
only if their images are, and the prefix cache needs to know nothing of images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError
from pteron.llm.chat import Message, render
from pteron.llm.images.load import PIXELS_MAX, load_part
from pteron.llm.images.processor import ImageProcessor

IMAGE_PARTS = ("image", "image_url")  # types of parts of a message
_ROW_BITS, _KEY_BYTES = 16, 12
_PROBE = "pteron probe"


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
        assert len(self) < 1 << _ROW_BITS

    def __len__(self) -> int:
        """Rows of all tiles."""
        return len(self.tiles) * self.rows

    @property
    def ids(self) -> list[int]:
        return [-1 - (self.key << _ROW_BITS | row) for row in range(len(self))]


def key_and_row(id: int) -> tuple[int, int]:
    """The image of an id below 0, and the number of the row."""
    value = -1 - id
    return value >> _ROW_BITS, value & ((1 << _ROW_BITS) - 1)


def has_images(ids: Sequence[int]) -> bool:
    """Whether some ids are rows of images."""
    return min(ids, default=0) < 0


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


def read_images(
    messages: Sequence[Message], processor: ImageProcessor, rows_max: int | None = None
) -> tuple[PromptImage, ...]:
    """The images of messages, in order. An error says which one it is. If they have more than `rows_max`
    rows, no further one is read: small files may become large."""
    found, parts = list[PromptImage](), image_parts(messages)
    pixels_left, rows = PIXELS_MAX, 0
    for number, part in enumerate(parts, 1):
        try:
            pixels = load_part(part, pixels_left)
            tiles = processor.cut(pixels)
        except InputError as error:
            raise InputError(f"image {number}: {error}") from None
        pixels_left -= pixels.size // 3
        found.append(PromptImage(tiles.pixels, processor.tiles.rows, tiles.text))
        rows += len(found[-1])
        if rows_max is not None and rows > rows_max:
            raise InputError(
                f"the first {number} of {len(parts)} images have {rows} rows, which count as tokens; at most "
                f"{rows_max} fit"
            )
    return tuple(found)


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


def with_rows(text: str, images: Sequence[PromptImage], token: str) -> str:
    """A rendered conversation, with all tokens of its images."""
    texts = text.split(token)
    if len(texts) != len(images) + 1:
        raise InputError(
            f"the conversation has {len(images)} images, but its prompt has {len(texts) - 1} times {token}, "
            "which only the chat template may write: remove it from the texts"
        )
    return texts[0] + "".join(image.text + after for image, after in zip(images, texts[1:], strict=True))


def with_image_ids(ids: Sequence[int], images: Sequence[PromptImage], token: int) -> tuple[int, ...]:
    """Ids of a prompt with those of its images' rows, in place of the token of any row."""
    rows = [id for image in images for id in image.ids]
    if sum(id == token for id in ids) != len(rows):
        raise InputError(f"the images of the prompt have {len(rows)} rows, but its text has another number")
    if ids[-1] == token:
        raise InputError("the prompt ends with an image: it needs a text behind it")
    remaining = iter(rows)
    return tuple(next(remaining) if id == token else id for id in ids)
