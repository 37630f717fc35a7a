"""Tiny checkpoints of models that read images, as their goldens describe them: configuration, shapes of
tensors, a conversation with images, and what Hugging Face's processor and model make of it.

The values of tensors follow from their names, the pixels of images from their sizes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from checkpoints import values

FOLDER = Path(__file__).parents[1] / "fixtures/llm/images"
NAMES = ("idefics3", "smolvlm")
SPECIAL = ("<|im_start|>", "<end_of_utterance>", "<image>", "<fake_token_around_image>", "<global-img>")
TILES = tuple(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5))
# SmolVLM's own template: it takes content as a list of parts only.
TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def picture(width: int, height: int) -> npt.NDArray[np.uint8]:
    """An image [height, width, 3] of waves and noise."""
    y, x = np.mgrid[:height, :width].astype(np.float64)
    waves = np.stack([np.sin(x / 7 + y / 5), np.cos(x / 11 - y / 3), np.sin(y / 9)], -1)
    noise = np.random.default_rng(width * 1000 + height).normal(0, 12, (height, width, 3))
    return np.clip(127 + 100 * waves + noise, 0, 255).astype(np.uint8)


@dataclass(frozen=True)
class ImageGolden:
    config: dict[str, Any]
    settings: dict[str, Any]  # of the image processor
    shapes: dict[str, tuple[int, ...]]
    texts: list[str | tuple[int, int]]  # parts of a message: texts, and images by size
    prompt: list[int]  # with the image token for each row of an image
    logits: npt.NDArray[np.float64]  # after the prompt
    tokens: list[int]  # greedy, after the prompt
    tiles: list[npt.NDArray[np.uint8]]  # of each image [count, size, size, 3]

    @classmethod
    def load(cls, name: str) -> ImageGolden:
        with np.load(FOLDER / f"{name}.npz") as file:
            about = json.loads(str(file["about"]))
            tiles = [file[f"tiles{index}"] for index in range(about.pop("images"))]
            shapes = {name: tuple(shape) for name, shape in about.pop("shapes").items()}
            texts = [part if isinstance(part, str) else tuple(part) for part in about.pop("texts")]
            return cls(shapes=shapes, texts=texts, logits=file["logits"], tiles=tiles, **about)

    def save(self, name: str) -> None:
        FOLDER.mkdir(exist_ok=True)
        keys = ("config", "settings", "shapes", "texts", "prompt", "tokens")
        about = {key: getattr(self, key) for key in keys} | {"images": len(self.tiles)}
        arrays: dict[str, Any] = {f"tiles{index}": tiles for index, tiles in enumerate(self.tiles)}
        np.savez_compressed(FOLDER / f"{name}.npz", about=json.dumps(about), logits=self.logits, **arrays)

    @property
    def messages(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        for each in self.texts:
            if isinstance(each, str):
                parts.append({"type": "text", "text": each})
            else:
                parts.append({"type": "image", "image": picture(*each)})
        return [{"role": "user", "content": parts}]

    def write_folder(self, folder: Path) -> Path:
        """A Hugging Face folder."""
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        (folder / "preprocessor_config.json").write_text(json.dumps(self.settings))
        tensors = {name: values(name, shape) for name, shape in self.shapes.items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        write_tokenizer(folder)
        return folder


def write_tokenizer(folder: Path) -> None:
    """Bytes, and the control tokens of images."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (*SPECIAL, *TILES)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end_of_utterance>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATE}))
