"""A file, a data URL, a Pillow image or an array -> RGB pixels, within limits of size.

Images of requests are not trusted: only a few formats are decoded, and the number of pixels, which the header
of a file states, is checked before they are.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError
from pteron.extras import need
from pteron.format.source import read_file

Pixels: TypeAlias = npt.NDArray[np.uint8]  # [height, width, 3]

BYTES_MAX = 20 << 20  # of a file
PIXELS_MAX = 50_000_000
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_SCANS_MAX = 100  # of a JPEG file; a progressive one has about ten
_STRIP = 1 << 20  # pixels that are converted at once
_TRANSPARENT = ("RGBA", "RGBa", "LA", "La", "PA")  # modes of Pillow
_DATA_URL = re.compile(r"data:[^,]{0,256},")


def load_part(part: Mapping[str, Any], pixels_max: int = PIXELS_MAX) -> Pixels:
    """The pixels of a part of a message: {"type": "image_url", "image_url": {"url": "data:..."}}, or
    {"type": "image", "image": ...} with a path, bytes, a Pillow image or an array."""
    if part.get("type") == "image":
        return load_image(part.get("image"), pixels_max)
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, Mapping) else given
    if not isinstance(url, str):
        raise InputError('image_url must be an object with a url, as {"url": "data:image/png;base64,..."}')
    return _decoded(data_of_url(url), pixels_max)


def data_of_url(url: str) -> bytes:
    """The content of a data URL. Other addresses are an error: nothing is fetched for a prompt."""
    head = _DATA_URL.match(url)
    if head is None:
        kind = "is an address" if re.match(r"[a-zA-Z][\w+.-]*:", url) else "is no data URL"
        raise InputError(
            f"the image's URL {kind}: addresses in prompts are not fetched, since a prompt could then reach "
            "servers and files that only this machine can; send the image itself, as "
            "data:image/png;base64,..."
        )
    if not head[0].endswith(";base64,"):
        raise InputError("the image's data URL must be in base64, as data:image/png;base64,...")
    return data_of_base64(url[head.end() :])


def data_of_base64(text: str) -> bytes:
    if len(text) > BYTES_MAX * 4 // 3 + 4:
        raise _too_large(len(text) * 3 // 4)
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"the image is not valid base64: {error}") from None


def load_image(given: object, pixels_max: int = PIXELS_MAX) -> Pixels:
    """The pixels of a path, of the bytes of a file, of a Pillow image or of an array [height, width] or
    [height, width, channels] of bytes."""
    if isinstance(given, (str, os.PathLike)):
        data = read_file(Path(given), BYTES_MAX)
        try:
            return _decoded(data, pixels_max)
        except InputError as error:
            raise InputError(f"{os.fspath(given)}: {error}") from None
    if isinstance(given, (bytes, bytearray, memoryview)):
        return _decoded(bytes(given), pixels_max)
    if isinstance(given, np.ndarray):
        return _of_array(given, pixels_max)
    if hasattr(given, "convert") and hasattr(given, "size"):
        return _rgb(given, pixels_max, is_ours=False)
    raise InputError(
        "an image must be a path, the bytes of a file, a Pillow image or an array of bytes "
        f"[height, width, 3], not {type(given).__name__}"
    )


def _of_array(array: npt.NDArray[Any], pixels_max: int) -> Pixels:
    is_image = array.dtype == np.uint8 and array.ndim in (2, 3) and array.shape[2:] in ((), (1,), (3,), (4,))
    if not is_image or not array.size:
        raise InputError(
            "an image must be an array of bytes (uint8) [height, width] or [height, width, channels] with 1, "
            f"3 or 4 channels, not {array.dtype} {list(array.shape)}"
        )
    _check_pixels(array.shape[1], array.shape[0], pixels_max)
    image = need("PIL.Image", "reading images")
    plain = array[..., 0] if array.shape[2:] == (1,) else array
    return _rgb(image.fromarray(np.ascontiguousarray(plain)), pixels_max)


def _decoded(data: bytes, pixels_max: int) -> Pixels:
    if len(data) > BYTES_MAX:
        raise _too_large(len(data))
    image = need("PIL.Image", "reading images")
    try:
        opened = image.open(BytesIO(data), formats=FORMATS)
    except Exception as error:  # decoders raise errors of many kinds
        reason = str(error) if isinstance(error, image.DecompressionBombError) else ""
        raise InputError(
            f"the image cannot be read: {reason or 'it is no PNG, JPEG, WebP, GIF or BMP file'}"
        ) from None
    if opened.format == "JPEG" and data.count(b"\xff\xda") > _SCANS_MAX:  # each goes over all pixels
        raise InputError(f"the image cannot be read: it has more than {_SCANS_MAX} scans")
    return _rgb(opened, pixels_max)


def _rgb(image: Any, pixels_max: int, *, is_ours: bool = True) -> Pixels:
    """A Pillow image as pixels, turned as its file says; `is_ours`: it may be changed."""
    width, height = image.size
    _check_pixels(width, height, pixels_max)
    ops = need("PIL.ImageOps", "reading images")
    try:
        image = ops.exif_transpose(image, in_place=is_ours) or image
        width, height = image.size
        pixels, lines = np.empty((height, width, 3), np.uint8), max(1, _STRIP // width)
        for top in range(0, height, lines):  # converting the whole image would take copies of it
            bottom = min(top + lines, height)
            pixels[top:bottom] = _strip(image.crop((0, top, width, bottom)))
        return pixels
    except Exception as error:
        raise InputError(f"the image cannot be read: {error}") from None


def _strip(image: Any) -> npt.NDArray[Any]:
    """The pixels of a part of an image, on a white background."""
    if image.mode.startswith("I"):  # 16 bits, which a conversion would clip to 8
        return (np.asarray(image)[..., None] / 257).round().clip(0, 255)
    if image.mode in _TRANSPARENT or "transparency" in image.info:
        image = image.convert("RGBA")
        background = need("PIL.Image", "reading images").new("RGBA", image.size, "white")
        background.alpha_composite(image)
        image = background
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def _check_pixels(width: int, height: int, pixels_max: int) -> None:
    if width * height > pixels_max:
        left = "" if pixels_max == PIXELS_MAX else f"; {pixels_max} are left"
        raise InputError(
            f"the image has {width} x {height} pixels; at most {PIXELS_MAX // 10**6} million are read, those "
            f"of all images of a prompt together{left}"
        )


def _too_large(size: int) -> InputError:
    return InputError(f"the image has {size} bytes; at most {BYTES_MAX >> 20} MiB are read")
