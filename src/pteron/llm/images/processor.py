"""Image processors: how a model wants its images cut and named in the prompt.

In: pixels. Out: tiles, and their text in a prompt. The settings come from the checkpoint
(preprocessor_config.json), and `pteron export llm` keeps them in pteron.json.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pteron.errors import FormatError, UnsupportedError
from pteron.extras import need
from pteron.llm.images.load import Pixels
from pteron.llm.images.tiles import TileLayout


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles of an image [count, size, size, 3], and their text in a prompt."""

    pixels: npt.NDArray[np.uint8]
    text: str


@dataclass(frozen=True)
class ImageProcessor(ABC):
    """`token` is the text of the token for one row of a tile. A chat template writes it once for an image."""

    name: ClassVar[str]
    token: ClassVar[str]

    tiles: TileLayout
    mean: tuple[float, ...]
    std: tuple[float, ...]
    factor: float  # of pixels, before the mean is subtracted
    resample: int  # Pillow's number of a filter

    @classmethod
    @abstractmethod
    def tile_size(cls, settings: Mapping[str, Any]) -> int:
        """The pixels of a tile's side, by preprocessor_config.json."""

    @classmethod
    @abstractmethod
    def of_settings(cls, settings: Mapping[str, Any], tiles: TileLayout) -> ImageProcessor:
        """The processor of preprocessor_config.json."""

    @abstractmethod
    def cut(self, pixels: Pixels) -> Tiles: ...

    def patches(self, tile: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """The input of the encoder for one tile."""
        scaled = tile.astype(np.float32) * np.float32(self.factor)
        normal = (scaled - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(self.tiles.cut(normal))

    @property
    def manifest(self) -> dict[str, Any]:
        return {"processor": self.name, **asdict(self)}


@dataclass(frozen=True)
class Idefics3Processor(ImageProcessor):
    """Splits an image into tiles, and adds the whole image as one more."""

    name: ClassVar[str] = "idefics3"
    token: ClassVar[str] = "<image>"
    _AROUND: ClassVar[str] = "<fake_token_around_image>"
    _WHOLE: ClassVar[str] = "<global-img>"
    # As in transformers: a tile if the settings name none, and the longest side of any image.
    _TILE: ClassVar[int] = 364
    _SIDE_MAX: ClassVar[int] = 4096

    longest_edge: int  # of the image that is split
    splits: bool  # False: the whole image is the only tile

    @classmethod
    def tile_size(cls, settings: Mapping[str, Any]) -> int:
        return int((settings.get("max_image_size") or {"longest_edge": cls._TILE})["longest_edge"])

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any], tiles: TileLayout) -> Idefics3Processor:
        common = _common(settings, tiles)
        size = settings.get("size") or {"longest_edge": 4 * cls._TILE}
        return cls(
            **common,
            longest_edge=int(size["longest_edge"]),
            splits=bool(settings.get("do_image_splitting", True)),
        )

    def cut(self, pixels: Pixels) -> Tiles:
        image, size = need("PIL.Image", "reading images").fromarray(pixels), self.tiles.size
        image = image.resize(self._first_size(*image.size), self.resample)
        whole = (size, size)
        if not self.splits:
            tiles, lines, columns = [image.resize(whole, self.resample)], 0, 0
        else:
            image = image.resize(self._split_size(*image.size), self.resample)
            columns, lines = (length // size for length in image.size)
            boxes = [
                (column * size, line * size, (column + 1) * size, (line + 1) * size)
                for line in range(lines)
                for column in range(columns)
            ]
            is_one = len(boxes) == 1
            tiles = [image] if is_one else [*map(image.crop, boxes), image.resize(whole, self.resample)]
            lines, columns = (0, 0) if is_one else (lines, columns)
        return Tiles(np.stack([np.asarray(tile, np.uint8) for tile in tiles]), self._text(lines, columns))

    def _first_size(self, width: int, height: int) -> tuple[int, int]:
        """The longer side as long as `longest_edge`, the other one an even number."""
        ratio, longest = width / height, self.longest_edge
        short = int(longest / ratio) if width >= height else int(longest * ratio)
        short = max(1, short + short % 2)
        width, height = (longest, short) if width >= height else (short, longest)
        return self._within(width, height)

    def _within(self, width: int, height: int) -> tuple[int, int]:
        ratio, most = width / height, self._SIDE_MAX
        if width >= height and width > most:
            width, height = most, int(most / ratio)
        elif height > width and height > most:
            width, height = int(most * ratio), most
        return max(width, 1), max(height, 1)

    def _split_size(self, width: int, height: int) -> tuple[int, int]:
        """Both sides as multiples of a tile's."""
        size, ratio = self.tiles.size, width / height
        if width >= height:
            width = ceil(width / size) * size
            height = ceil(int(width / ratio) / size) * size
        else:
            height = ceil(height / size) * size
            width = ceil(int(height * ratio) / size) * size
        return max(width, size), max(height, size)

    def _text(self, lines: int, columns: int) -> str:
        rows = self.token * self.tiles.rows
        split = "".join(
            "".join(f"{self._AROUND}<row_{line}_col_{column}>{rows}" for column in range(1, columns + 1))
            + "\n"
            for line in range(1, lines + 1)
        )
        gap = "\n" if lines else ""
        return f"{split}{gap}{self._AROUND}{self._WHOLE}{rows}{self._AROUND}"


PROCESSORS: dict[str, type[ImageProcessor]] = {each.name: each for each in (Idefics3Processor,)}


def _common(settings: Mapping[str, Any], tiles: TileLayout) -> dict[str, Any]:
    """The settings that all processors have."""
    for key in ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb"):
        if settings.get(key, True) is not True:
            raise UnsupportedError(
                f"{key} of the image processor is {settings[key]!r}; only true is supported"
            )
    return {
        "tiles": tiles,
        "mean": tuple(map(float, settings.get("image_mean") or (0.5, 0.5, 0.5))),
        "std": tuple(map(float, settings.get("image_std") or (0.5, 0.5, 0.5))),
        "factor": float(settings.get("rescale_factor", 1 / 255)),
        "resample": int(settings.get("resample", 1)),
    }


def processor_of_manifest(manifest: Mapping[str, Any]) -> ImageProcessor:
    """The processor that `ImageProcessor.manifest` describes."""
    fields = dict(manifest)
    kind = fields.pop("processor", None)
    if kind not in PROCESSORS:
        raise FormatError(f"unknown image processor {kind!r}; known are {', '.join(PROCESSORS)}")
    try:
        fields["tiles"] = TileLayout(**fields["tiles"])
        for name in ("mean", "std"):
            fields[name] = tuple(fields[name])
        return PROCESSORS[kind](**fields)
    except (KeyError, TypeError) as error:
        raise FormatError(f"the settings of the image processor are incomplete: {error}") from None
