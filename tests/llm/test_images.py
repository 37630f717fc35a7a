"""Models that read images: their processor, logits and tokens are those of Hugging Face's, whose goldens are
in tests/fixtures/llm/images."""

from __future__ import annotations

import base64
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
from checkpoints import values
from image_checkpoints import NAMES, ImageGolden, picture

from pteron.cli import main
from pteron.errors import FormatError, InputError, MissingFileError, UnsupportedError
from pteron.llm import LLM
from pteron.llm.architectures.idefics3 import _positions, encoder, tile_layout
from pteron.llm.engine import Engine
from pteron.llm.export import export_llm, read_checkpoint
from pteron.llm.images.load import BYTES_MAX, PIXELS_MAX, load_image, load_part
from pteron.llm.images.prefill import RequestImages
from pteron.llm.images.prompt import PromptImage, has_images
from pteron.llm.images.tiles import TileLayout
from pteron.llm.names.models import BUNDLED
from pteron.llm.request import chat_request
from pteron.runtime import Program

pytest.importorskip("safetensors.numpy")
pytest.importorskip("tokenizers")
PIL = pytest.importorskip("PIL.Image")

OPTIONS: dict[str, Any] = {
    "quantize": None,
    "embedding_bits": None,
    "max_seq_len": 16,
    "max_context_len": 512,
}


def export(name: str, folder: Path, **options: Any) -> Path:
    ImageGolden.load(name).write_folder(folder / "checkpoint")
    return export_llm(folder / "checkpoint", folder / "program", **(OPTIONS | options))


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(export(request.param, tmp_path_factory.mktemp(request.param))) as made:
        made.name = request.param
        yield made


@pytest.fixture(scope="module")
def smolvlm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(export("smolvlm", tmp_path_factory.mktemp("smolvlm")), sequences=4) as made:
        yield made


def image_url(pixels: Any, kind: str = "PNG") -> dict[str, Any]:
    file = BytesIO()
    PIL.fromarray(pixels).save(file, kind)
    data = base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind.lower()};base64,{data}"}}


def ask(*parts: Any) -> list[dict[str, Any]]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return [{"role": "user", "content": content}]


def tokens(llm: LLM, messages: Any, **options: Any) -> list[int]:
    return [piece.token for piece in llm.chat(messages, max_new_tokens=12, stop_ids=[], **options)]


def prefilled_logits(llm: LLM, messages: Any) -> Any:
    """The logits after a conversation."""
    assert llm.image_prefill is not None
    model, images = llm.model, RequestImages(llm.image_prefill, tuple(llm.read_images(messages)))
    user = model.claim()
    model.resume([0], user)
    *chunks, last = model.chunks(llm.encode_chat(messages))
    for chunk in chunks:
        if has_images(chunk):
            images.submit(model, user, chunk)
        else:
            model.prefill_as(chunk, user)
    return model.prefill_as(last, user)


# Against Hugging Face ------------------------------------------------------------------------------


def test_tiles_and_prompt_are_those_of_hugging_face(model: LLM) -> None:
    golden, prefill = ImageGolden.load(model.name), model.image_prefill
    assert prefill is not None
    for image, tiles in zip(model.read_images(golden.messages), golden.tiles, strict=True):
        np.testing.assert_array_equal(image.tiles, tiles)
    ids = model.encode_chat(golden.messages)
    assert [prefill.token if id < 0 else id for id in ids] == golden.prompt


@pytest.mark.long(every=2)
def test_logits_are_those_of_hugging_face(model: LLM) -> None:
    golden = ImageGolden.load(model.name)
    found = prefilled_logits(model, golden.messages)
    assert np.abs(found - golden.logits).max() <= 2e-5 * np.abs(golden.logits).max()


@pytest.mark.long(every=2)
@pytest.mark.parametrize("resident", [True, False])
def test_greedy_tokens_are_those_of_hugging_face(model: LLM, resident: bool) -> None:
    golden = ImageGolden.load(model.name)
    model.reset()
    assert tokens(model, golden.messages, resident=resident) == golden.tokens
    assert model.statistics.prompt_tokens == len(golden.prompt)


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    "options",
    [{"quantize": "8w"}, {"quantize": "4w", "embedding_bits": 4, "group_size": 8}, {"force_fp16": True}],
)
def test_other_weights_are_near(options: dict[str, Any], tmp_path: Path) -> None:
    golden = ImageGolden.load("smolvlm")
    with LLM(export("smolvlm", tmp_path, **options)) as llm:
        found = prefilled_logits(llm, golden.messages)
    tolerance = {"8w": 0.05, "4w": 0.7, None: 0.01}[options.get("quantize")]
    assert np.abs(found - golden.logits).max() <= tolerance * np.abs(golden.logits).max()


def test_learned_positions_follow_the_rounding_of_transformers() -> None:
    torch = pytest.importorskip("torch")
    for learned, side in ((27, 27), (7, 7), (32, 32), (26, 13), (14, 27)):
        limits = torch.arange(1 / learned, 1.0, 1 / learned)
        places = torch.arange(side, dtype=torch.float32) * (1.0 / torch.tensor(side))
        nearest = torch.bucketize(torch.clamp(places, max=1 - 1e-6), limits, right=True)
        expected = (nearest[:, None] * learned + nearest[None]).flatten().tolist()
        assert list(_positions(side, learned)) == expected


# The prefix cache ----------------------------------------------------------------------------------


def test_equal_images_are_reused_and_others_are_not(smolvlm: LLM) -> None:
    one, other = picture(30, 30), picture(30, 30)
    other[7, 9] ^= 128
    smolvlm.reset()
    first = tokens(smolvlm, ask({"type": "image", "image": one}, "What?"))
    assert smolvlm.statistics.reused_tokens == 0
    count = smolvlm.statistics.prompt_tokens
    assert tokens(smolvlm, ask({"type": "image", "image": one}, "What?")) == first
    assert smolvlm.statistics.reused_tokens == count - 1
    second = tokens(smolvlm, ask({"type": "image", "image": other}, "What?"))
    assert smolvlm.statistics.reused_tokens < 30  # up to the first tile that differs
    smolvlm.reset()
    assert tokens(smolvlm, ask({"type": "image", "image": other}, "What?")) == second


def test_a_turn_after_an_image_reads_only_what_is_new(smolvlm: LLM) -> None:
    begin = ask({"type": "image", "image": picture(20, 44)}, "What?")
    smolvlm.reset()
    answer = "".join(piece.text for piece in smolvlm.chat(begin, max_new_tokens=4, stop_ids=[]))
    before = smolvlm.statistics.prompt_tokens
    more = [*begin, {"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}]
    found = tokens(smolvlm, more)
    assert smolvlm.statistics.reused_tokens >= before - 1
    smolvlm.reset()
    assert tokens(smolvlm, more) == found


def test_a_saved_cache_knows_its_images(smolvlm: LLM, tmp_path: Path) -> None:
    messages = ask({"type": "image", "image": picture(40, 20)}, "What?")
    smolvlm.reset()
    expected = tokens(smolvlm, messages)
    smolvlm.save(tmp_path / "cache")
    smolvlm.reset()
    smolvlm.restore(tmp_path / "cache")
    assert tokens(smolvlm, messages) == expected
    assert smolvlm.statistics.reused_tokens == smolvlm.statistics.prompt_tokens - 1


def test_prompts_with_and_without_images_run_as_one_batch(smolvlm: LLM) -> None:
    conversations = [
        ask({"type": "image", "image": picture(50, 31)}, "What?"),
        ask("Hello"),
        ask({"type": "image", "image": picture(31, 50)}, "Which?"),
        ask({"type": "image", "image": picture(50, 31)}, "Where?"),
    ]
    expected = []
    for messages in conversations:
        smolvlm.reset()
        expected.append(tokens(smolvlm, messages))
    smolvlm.reset()
    found = smolvlm.generate_batch(conversations, max_new_tokens=12, stop_ids=[])
    assert [[piece.token for piece in each.pieces] for each in found] == expected
    assert smolvlm.engine is not None
    assert smolvlm.engine.slots


def test_speculation_leaves_images_out(tmp_path: Path) -> None:
    golden = ImageGolden.load("idefics3")
    with LLM(export("idefics3", tmp_path), speculate="lookup") as llm:
        assert tokens(llm, golden.messages) == golden.tokens


def test_adapters_change_the_language_model_only(tmp_path: Path) -> None:
    """A model with an adapter answers like one whose weights have the adapter's product added."""
    from safetensors.numpy import save_file

    golden, name = ImageGolden.load("smolvlm"), "model.text_model.layers.1.self_attn.q_proj"
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 32), (32, 3)))
    folder = tmp_path / "adapter"
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    pair = {f"base_model.model.{name}.lora_{each}.weight": matrix for each, matrix in (("A", a), ("B", b))}
    save_file(pair, folder / "adapter_model.safetensors")
    program = export("smolvlm", tmp_path)
    with LLM(program, adapters={"one": folder}) as llm:
        plain = tokens(llm, golden.messages)
        found = tokens(llm, golden.messages, adapter="one")
    assert plain == golden.tokens
    weights = {key: values(key, shape) for key, shape in golden.shapes.items()}
    weights[f"{name}.weight"] += 2 * b @ a
    save_file(weights, tmp_path / "checkpoint/model.safetensors", {"format": "pt"})
    with LLM(export_llm(tmp_path / "checkpoint", tmp_path / "merged", **OPTIONS)) as merged:
        assert tokens(merged, golden.messages) == found != plain


# What is given as an image -------------------------------------------------------------------------


def test_an_image_in_any_form_is_the_same(smolvlm: LLM, tmp_path: Path) -> None:
    pixels = picture(23, 17)
    file = tmp_path / "image.png"
    PIL.fromarray(pixels).save(file)
    forms = [pixels, PIL.fromarray(pixels), file, str(file), file.read_bytes()]
    parts = [{"type": "image", "image": each} for each in forms]
    parts += [image_url(pixels), {"type": "image_url", "image_url": image_url(pixels)["image_url"]["url"]}]
    lines = base64.encodebytes(file.read_bytes()).decode()  # as e-mails have it
    parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{lines}"}})
    ids = {smolvlm.encode_chat(ask(part, "What?")) for part in parts}
    assert len(ids) == 1


def test_transparent_grey_and_turned_images_are_read() -> None:
    pixels = picture(9, 5)
    alpha = np.dstack([pixels, np.full((5, 9), 255, np.uint8)])
    np.testing.assert_array_equal(load_image(alpha), pixels)
    assert load_image(pixels[..., 0]).shape == load_image(pixels[..., :1]).shape == (5, 9, 3)
    exif = PIL.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    file = BytesIO()
    PIL.fromarray(pixels).save(file, "PNG", exif=exif)
    np.testing.assert_array_equal(load_image(file.getvalue()), np.rot90(pixels, -1))


def png(image: Any, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


@pytest.mark.parametrize("strip", [1, 1 << 20])
def test_transparent_pixels_become_white(strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Hugging Face's processors convert them."""
    monkeypatch.setattr("pteron.llm.images.load._STRIP", strip)
    pixels, alpha = picture(7, 5), (np.arange(35).reshape(5, 7) * 7).astype(np.uint8)
    share = alpha[..., None] / 255
    clear = PIL.fromarray(np.dstack([pixels, alpha]))
    assert np.abs(load_image(png(clear)) - (pixels * share + 255 * (1 - share))).max() <= 1
    grey = PIL.fromarray(np.dstack([pixels[..., 0], alpha]), "LA")
    assert np.abs(load_image(png(grey)) - (pixels[..., :1] * share + 255 * (1 - share))).max() <= 1
    palette = PIL.fromarray((np.arange(35).reshape(5, 7) % 3).astype(np.uint8), "P")
    palette.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    expected = np.array([[10, 20, 30], [255, 255, 255], [70, 80, 90]])[np.asarray(palette)]
    np.testing.assert_array_equal(load_image(png(palette, transparency=1)), expected)
    one = png(PIL.fromarray(pixels), transparency=tuple(map(int, pixels[2, 3])))
    is_clear = (pixels == pixels[2, 3]).all(-1, keepdims=True)
    np.testing.assert_array_equal(load_image(one), np.where(is_clear, 255, pixels))


def test_grey_images_of_16_bits_keep_their_range() -> None:
    values = np.linspace(0, 65535, 35).astype(np.uint16).reshape(5, 7)
    expected = np.repeat((values / 257).round()[..., None], 3, -1)
    np.testing.assert_array_equal(load_image(png(PIL.fromarray(values))), expected)


def test_a_given_image_stays_as_it_is() -> None:
    image = PIL.fromarray(picture(7, 5))
    image.getexif()[0x0112] = 6
    assert load_image(image).shape == (7, 5, 3)
    assert image.size == (7, 5)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of its memory from /proc")
def test_reading_takes_little_more_memory_than_the_pixels(tmp_path: Path) -> None:
    """Pillow has 4 bytes a pixel, and the result 3."""
    file = tmp_path / "large.png"
    PIL.new("RGB", (4001, 3001)).save(file)
    code = f"""
import re
from pathlib import Path
from pteron.llm.images.load import load_image
import PIL.ImageOps, PIL.PngImagePlugin
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
load_image({str(file)!r})
print((peak() - before) * 1024)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 9 * 4001 * 3001


def bomb() -> bytes:
    """A PNG file whose header states more pixels than may be read."""
    file = BytesIO()
    PIL.fromarray(picture(8, 8)).save(file, "PNG")
    data = bytearray(file.getvalue())
    from zlib import crc32

    data[16:24] = (20_000).to_bytes(4, "big") * 2
    data[29:33] = crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b"no image", "cannot be read: it is no PNG"),
        (b"GIF89a", "cannot be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "it is no PNG"),
        (np.zeros((4, 4, 2), np.uint8), "1, 3 or 4 channels"),
        (np.zeros((4, 4, 3), np.float32), "array of bytes"),
        (np.zeros((0, 4, 3), np.uint8), "array of bytes"),
        (np.broadcast_to(np.uint8(0), (PIXELS_MAX, 2)), "at most 50 million"),
        (b"\x89PNG\r\n\x1a\n" + bytes(BYTES_MAX), "at most 20 MiB"),
        (Path(__file__), r"test_images\.py: the image cannot be read: it is no PNG"),
        (7, "a path, the bytes of a file"),
    ],
)
def test_what_is_no_image_is_an_error(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_image(given)


def test_a_file_with_too_many_pixels_is_not_decoded() -> None:
    with pytest.raises(InputError, match=r"400000000 pixels|20000 x 20000 pixels"):
        load_image(bomb())


def test_a_jpeg_with_too_many_scans_is_not_decoded() -> None:
    """Each scan of a few bytes goes over all pixels."""
    file = BytesIO()
    PIL.fromarray(picture(64, 64)).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    assert load_image(data).shape == (64, 64, 3)
    last = data.rindex(b"\xff\xda")
    with pytest.raises(InputError, match="more than 100 scans"):
        load_image(data[:last] + data[last:-2] * 101 + data[-2:])


def test_a_truncated_file_is_an_error() -> None:
    file = BytesIO()
    PIL.fromarray(picture(64, 64)).save(file, "PNG")
    with pytest.raises(InputError, match="cannot be read"):
        load_image(file.getvalue()[:-200])


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
@pytest.mark.filterwarnings("ignore")  # decoders warn of damaged metadata
def test_damaged_files_are_read_or_one_error(kind: str) -> None:
    file = BytesIO()
    PIL.fromarray(picture(40, 30)).save(file, kind)
    whole, random = file.getvalue(), np.random.default_rng(len(file.getvalue()))
    for _ in range(150):
        data = bytearray(whole[: random.integers(1, len(whole) + 1)])
        for at in random.integers(0, len(data), random.integers(0, 8)):
            data[at] = random.integers(256)
        try:
            pixels = load_image(bytes(data))
        except InputError:
            continue
        assert pixels.ndim == 3
        assert pixels.size <= 3 * PIXELS_MAX


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://example.com/a.png", "addresses in prompts are not fetched"),
        ("file:///etc/passwd", "addresses in prompts are not fetched"),
        ("/etc/passwd", "is no data URL"),
        ("data:image/png,abc", "must be in base64"),
        ("data:image/png;base64,&&&", "not valid base64"),
        ("data:image/png;base64,AAAA", "it is no PNG"),
        (None, "an object with a url"),
    ],
)
def test_urls_other_than_data_are_errors(url: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_part({"type": "image_url", "image_url": {"url": url}})


def test_the_image_token_in_a_text_is_no_image(smolvlm: LLM) -> None:
    first, second = ({"type": "image", "image": picture(9, height)} for height in (9, 10))
    (one,), (two,) = (tuple(smolvlm.read_images(ask(part))) for part in (first, second))
    assert smolvlm.image_prefill is not None
    ids = smolvlm.encode_chat(ask("<image>", first, "What is <image>?", second, "<image><image>"))
    token = smolvlm.image_prefill.token
    assert [id for id in ids if id < 0 or id == token] == [token, *one.ids, token, *two.ids, token, token]
    assert len(tokens(smolvlm, ask(first, "What is <image>?"))) == 12


def test_the_text_of_a_conversation_shows_its_images(smolvlm: LLM) -> None:
    text = smolvlm.render_chat(ask({"type": "image", "image": picture(9, 9)}, "What is <image>?"))
    assert smolvlm.shown(text) == "<|im_start|>User:<image>What is <image>?<end_of_utterance>\nAssistant:"


def test_a_template_that_leaves_images_out_is_an_error(smolvlm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smolvlm.tokenizer, "chat_template", "{{ messages[0]['content'][-1]['text'] }}")
    with pytest.raises(InputError, match="has 1 images, but its chat template writes <image> for 0"):
        smolvlm.encode_chat(ask({"type": "image", "image": picture(9, 9)}, "What?"))


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (None, InputError, "image 2: an image must be a path"),
        ("missing.png", MissingFileError, r"image 2: .*missing\.png"),
        (b"no image", InputError, "image 2: the image cannot be read"),
        (
            np.broadcast_to(np.uint8(0), (PIXELS_MAX // 2, 2)),
            InputError,
            "image 2: .* 2 x 25000000 pixels; at most 50 million .*; 49999919 are left",
        ),
    ],
)
def test_errors_say_which_image_it_is(smolvlm: LLM, given: Any, kind: type[Exception], message: str) -> None:
    first, second = ({"type": "image", "image": image} for image in (picture(9, 9), given))
    with pytest.raises(kind, match=message):
        smolvlm.encode_chat(ask(first, second, "?"))


def test_an_image_with_too_many_rows_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="the image has 65536 rows; at most 65535"):
        PromptImage(np.zeros((4, 1, 1, 3), np.uint8), 1 << 14, "")


def test_images_count_as_tokens_of_the_context(tmp_path: Path) -> None:
    with LLM(export("smolvlm", tmp_path, max_context_len=64)) as llm:
        messages = ask({"type": "image", "image": picture(70, 70)}, "What?")
        with pytest.raises(InputError, match="the context holds 64"):
            llm(messages)
        truncated = llm(messages, overflow="truncate", max_new_tokens=4)
        assert isinstance(truncated, str)
        assert llm.statistics.dropped_tokens > 0


def test_a_model_without_a_vision_part_says_so() -> None:
    with LLM(BUNDLED["stories15m"]) as llm:
        assert not llm.reads_images
        with pytest.raises(InputError, match=r"stories15m.* reads no images: its program has no vision part"):
            llm.encode_chat(ask({"type": "image", "image": picture(9, 9)}, "What?"))


# Export --------------------------------------------------------------------------------------------


def test_a_folder_without_the_processors_settings_is_an_error(tmp_path: Path) -> None:
    folder = ImageGolden.load("smolvlm").write_folder(tmp_path)
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(FormatError, match=r"neither preprocessor_config\.json nor"):
        read_checkpoint(folder)


def test_newer_folders_have_the_settings_elsewhere(tmp_path: Path) -> None:
    folder = ImageGolden.load("smolvlm").write_folder(tmp_path)
    expected = read_checkpoint(folder).vision
    settings = (folder / "preprocessor_config.json").read_text()
    (folder / "preprocessor_config.json").unlink()
    (folder / "processor_config.json").write_text(f'{{"image_processor": {settings}}}')
    found = read_checkpoint(folder).vision
    assert found is not None
    assert expected is not None
    assert found.processor == expected.processor


def test_settings_that_no_processor_has_are_errors(tmp_path: Path) -> None:
    golden = ImageGolden.load("smolvlm")
    golden.settings["do_normalize"] = False
    with pytest.raises(UnsupportedError, match="do_normalize of the image processor is False"):
        read_checkpoint(golden.write_folder(tmp_path))


def test_patches_of_a_block_follow_one_another() -> None:
    tiles = TileLayout(size=13, patch=2, block=3)
    assert (tiles.side, tiles.patches, tiles.rows) == (6, 36, 4)
    tile = np.arange(13 * 13 * 3).reshape(13, 13, 3)
    cut = tiles.cut(tile)[0]
    for number, patch in zip(tiles.order, cut, strict=True):
        y, x = divmod(int(number), 6)
        expected = tile[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].transpose(2, 0, 1)
        np.testing.assert_array_equal(patch, expected.reshape(-1))
    with pytest.raises(UnsupportedError, match="6 patches a side, which blocks of 4 do not divide"):
        TileLayout(13, 2, 4)


@pytest.mark.parametrize(
    ("vision", "scale", "expected"),
    [
        # SmolVLM-256M and 500M, whose files leave out the layers; SmolVLM (2.2B); Idefics3-8B-Llama3
        ({"hidden_size": 768, "image_size": 512, "num_attention_heads": 12, "patch_size": 16}, 4, (12, 64)),
        ({"image_size": 384, "num_hidden_layers": 27, "patch_size": 14}, 3, (27, 81)),
        ({"image_size": 364, "num_hidden_layers": 27, "patch_size": 14}, 2, (27, 169)),
    ],
)
def test_published_configurations(vision: dict[str, Any], scale: int, expected: tuple[int, int]) -> None:
    config = {"vision_config": vision, "scale_factor": scale}
    found = encoder(config, tile_layout(config, vision["image_size"]))
    assert (len(found.layers), found.tiles.rows) == expected
    assert found.positions == tuple(range(found.tiles.patches))


def test_ids_follow_from_the_content() -> None:
    tiles = np.zeros((2, 4, 4, 3), np.uint8)
    one, same = PromptImage(tiles, 3, ""), PromptImage(tiles.copy(), 3, "other text")
    assert one.ids == same.ids
    assert len(one.ids) == len(set(one.ids)) == 6
    tiles[1, 2, 3, 0] = 1
    assert not set(PromptImage(tiles, 3, "").ids) & set(one.ids)


# In a terminal -------------------------------------------------------------------------------------


def test_chat_in_a_terminal(smolvlm: LLM, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "image.png"
    PIL.fromarray(picture(33, 21)).save(file)
    expected = smolvlm(ask({"type": "image", "image": file}, "What?"), max_new_tokens=6)
    options = ["chat", smolvlm.name, "--quiet", "--max-new-tokens", "6", "--temperature", "0"]
    assert main([*options, "--image", str(file), "--prompt", "What?"]) == 0
    assert capsys.readouterr().out.strip() == expected.strip()
    assert main([*options, "--prompt", f"/image {file}", "--prompt", "What?"]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == expected.strip()
    assert main([*options, "--image", "missing.png", "--prompt", "What?"]) == 1
    assert "missing.png" in capsys.readouterr().err
    assert main([*options, "--prompt", "/image missing.png", "--prompt", "/image"]) == 0
    errors = capsys.readouterr().err
    assert "missing.png" in errors
    assert "/image needs a file name" in errors


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("\n".join(lines)))


def test_a_conversation_keeps_its_image(
    smolvlm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is read once; what is saved names it."""
    file, saved = tmp_path / "image.png", tmp_path / "saved.json"
    PIL.fromarray(picture(33, 21)).save(file)

    def read_once(path: Path, most: int) -> bytes:
        data = path.read_bytes()
        path.unlink()
        return data

    monkeypatch.setattr("pteron.llm.images.load.read_file", read_once)
    type_lines(monkeypatch, "What?", "And?", f"/save {saved}")
    options = ["chat", smolvlm.name, "--quiet", "--max-new-tokens", "6", "--temperature", "0"]
    assert main([*options, "--image", str(file)]) == 0
    assert capsys.readouterr().err == f"wrote {saved}\n"
    messages = json.loads(saved.read_text("utf-8"))
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2
    assert messages[0]["content"][0] == {"type": "image", "image": str(file)}


def test_an_error_does_not_end_the_conversation(
    smolvlm: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, saved = tmp_path / "image.png", tmp_path / "saved.json"
    PIL.fromarray(picture(33, 21)).save(file)
    monkeypatch.setattr("pteron.llm.images.prompt.PIXELS_MAX", 33 * 21)
    options = ["chat", smolvlm.name, "--quiet", "--max-new-tokens", "6", "--temperature", "0"]
    image = f"/image {file}"
    type_lines(monkeypatch, image, image, "Which?", image, "What?", f"/save {saved}")
    assert main(options) == 0
    assert "image 2: the image has 33 x 21 pixels" in capsys.readouterr().err
    first, answer = json.loads(saved.read_text("utf-8"))
    assert first["content"][-1] == {"type": "text", "text": "What?"}
    assert answer["role"] == "assistant"
    prompts = [part for text in (image, image, "Which?", "What?") for part in ("--prompt", text)]
    assert main([*options, *prompts]) == 1


# Memory --------------------------------------------------------------------------------------------


def test_images_are_freed_when_they_are_read(smolvlm: LLM) -> None:
    """The answer may be long."""
    messages = ask({"type": "image", "image": picture(50, 31)}, "What?")
    for _ in range(2):  # the second time, the KV cache holds the prompt
        request = chat_request(smolvlm, messages, max_new_tokens=40, stop_ids=[])
        kept = [ref(image) for image in request.images]
        with Engine(smolvlm) as engine:
            answer = engine.submit(request)
            del request
            pieces = iter(answer)
            next(pieces)
            gc.collect()
            assert [image() for image in kept] == [None]
            assert len([*pieces]) > 0


def test_a_folder_that_cannot_be_opened_frees_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = export("smolvlm", tmp_path)
    manifest = folder / "pteron.json"
    content = json.loads(manifest.read_text("utf-8"))
    manifest.write_text(json.dumps(content | {"vision": {"processor": "other"}}), "utf-8")
    closed, close = list[Program](), Program.close

    def note(program: Program) -> None:
        closed.append(program)
        close(program)

    monkeypatch.setattr(Program, "close", note)
    with pytest.raises(FormatError, match="unknown image processor 'other'"):
        LLM(folder)
    assert len(closed) == 1
