"""The example pages of sites, as a visitor uses them, at a phone's and a desktop's width, light and dark."""

from __future__ import annotations

import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browser_fixtures import TIMEOUT
from site_fixtures import SitePage, SiteServer

import pteron
from pteron.web import export_web

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PHONE, DESKTOP = {"width": 390, "height": 780}, {"width": 1280, "height": 800}
Visit = Callable[..., "Page"]


@pytest.fixture
def visit(gpu_browser: Browser) -> Iterator[Visit]:
    """Opens the page of a site; at the end, none may have logged anything or be wider than the window."""
    opened: list[tuple[Any, SiteServer]] = []
    complaints: list[str] = []

    def visit(folder: Path, query: str = "", size: dict[str, int] = PHONE, scheme: str = "dark") -> Page:
        server = SiteServer(folder)
        context = gpu_browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        opened.append((page, server))
        page.set_default_timeout(TIMEOUT)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server.url + query)
        return page

    yield visit
    for page, server in opened:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.context.close()
        server.close()
    assert complaints == []


@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "light"), (DESKTOP, "dark")])
def test_inputs_and_outputs(
    programs: Path, tmp_path: Path, visit: Visit, size: dict[str, int], scheme: str
) -> None:
    """A program without a page of its own: numbers go in and out; a wrong count is a sentence."""
    export_web(programs / "mlp.pte", tmp_path, variants=["software"])
    page = visit(tmp_path, "?doctor", size, scheme)
    page.fill("textarea", "1 " * 21)
    page.click("button.main")
    page.wait_for_selector("pre >> text=-0.08386")
    page.fill("textarea", "1 2 3")
    page.click("button.main")
    page.wait_for_selector("text=3 numbers do not fill the shape [3,7].")
    page.fill("textarea", "abc 1 zz")
    page.click("button.main")
    page.wait_for_selector("text=input_0: “abc” is not a number.")
    assert page.query_selector("text=Reset states") is None
    assert (page.title(), page.inner_text("h1")) == ("mlp", "mlp")
    report = page.inner_text("#status")
    assert "google swiftshader, variant software." in report
    assert "5 of 5 answers are right" in report


def test_a_story(tmp_path: Path, visit: Visit) -> None:
    """An error goes with the next text, and the text of the error is no part of the thread; a full context is
    said."""
    export_web("stories15m", tmp_path, variants=["software"], lengths=[1, 64])
    page = visit(tmp_path)
    page.fill("#text", "word " * 300)
    page.press("#text", "Enter")
    page.wait_for_selector("#status .bad:has-text('the context holds 256: shorten it.')")
    page.wait_for_selector("#stop", state="hidden")
    assert page.inner_text("#thread") == ""
    assert page.input_value("#text").startswith("word ")
    page.fill("#tokens", "12")
    page.fill("#temperature", "0")
    page.fill("#text", "Once upon a time")
    page.press("#text", "Enter")
    page.wait_for_selector("text=Once upon a time, there was a little girl named Lily.")
    page.wait_for_selector("#stop", state="hidden")
    assert page.inner_text("#speed").endswith(" tokens/s")
    assert page.query_selector("#status .bad") is None
    page.click("#new")
    page.fill("#text", "the " * 250)
    page.press("#text", "Enter")
    page.wait_for_selector("text=The context of 256 tokens is full: begin a new text.")
    page.click("#new")
    assert page.inner_text("#thread") == ""


@pytest.mark.export
def test_mobilenet(tmp_path: Path, visit: Visit, gpu_browser: Browser) -> None:
    """Outputs within 1e-4 of PyTorch's; the page names the class that it finds likeliest."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("executorch")
    image = pytest.importorskip("PIL.Image")
    from networks.vision import MobileNetV3Small

    torch.manual_seed(0)
    network = MobileNetV3Small().eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("weight") and parameter.ndim == 2:
                parameter *= 30  # so that classes differ
    picture = torch.randn(1, 3, 64, 64)
    names = [f"kind {index}" for index in range(10)]
    compiled = pteron.compile(network, (picture,))
    compiled.export_web(tmp_path, variants=["software"], labels=names)
    expected = network(picture).detach().numpy().reshape(-1)
    server = SiteServer(tmp_path)
    context = gpu_browser.new_context()
    found = SitePage.open(context, server).run(
        "const program = await load();"
        "const [{ name }] = program.methods.forward.inputs;"
        "return [...Object.values(await program.run({ [name]: Float32Array.from(argument) }))[0].data];",
        picture.reshape(-1).tolist(),
    )
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-4)
    context.close()
    server.close()
    image.fromarray(np.full((90, 70, 3), [200, 40, 90], np.uint8)).save(tmp_path / "picture.png")
    page = visit(tmp_path)
    page.wait_for_selector("#picture:not([hidden])")
    page.set_input_files("#file", tmp_path / "picture.png")
    page.wait_for_selector("#result table")
    assert page.inner_text("#result td").startswith("kind ")
    (tmp_path / "note.png").write_text("no picture")
    page.set_input_files("#file", tmp_path / "note.png")
    page.wait_for_selector("text=note.png is not a picture that this browser can read.")
    assert page.inner_text("#result") == ""
    page.set_input_files("#file", tmp_path / "picture.png")
    page.wait_for_selector("#result table")
    assert page.query_selector("#status .bad") is None


@pytest.mark.export
def test_speech(tmp_path: Path, visit: Visit) -> None:
    """A small untrained Whisper writes the text that it writes in PyTorch; its memory stays on the GPU."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("executorch")
    import transcribe
    import transcribe_web
    from models import whisper

    from pteron.speech import spectrogram

    torch.manual_seed(0)
    sizes = whisper.Sizes(
        bands=8, sound_positions=30, text_positions=11, vocabulary=150, width=32, heads=2, layers=1
    )
    encoder, decoder = whisper.Encoder(sizes).eval(), whisper.Decoder(sizes).eval()
    for block, attention in zip(decoder.blocks, encoder.cross, strict=True):
        attention.load_state_dict(block.cross_attn.state_dict())
    for model in (encoder, decoder):
        torch.nn.init.normal_(model.positional_embedding)
    words = transcribe.Vocabulary([bytes([letter]) for letter in range(32, 64)])
    transcribe_web.export_site(str(tmp_path), encoder, decoder, sizes, words, variants=["software"])
    samples = (np.random.default_rng(0).normal(size=9_000) * 3000).astype("<i2")
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setparams((1, 2, spectrogram.RATE, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    heard = spectrogram.log_mel(spectrogram.read_wav(tmp_path / "sound.wav"), 8, 60)
    expected = words.text(transcribe.listen(encoder, decoder, heard, words, sizes).tokens)
    page = visit(tmp_path)
    page.wait_for_selector("#sound:not([hidden])")
    page.set_input_files("#file", tmp_path / "sound.wav")
    page.wait_for_selector("#speed:not(:empty)")
    assert len(expected) > 1
    assert page.inner_text("#heard").strip() == expected
