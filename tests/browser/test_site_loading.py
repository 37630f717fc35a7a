"""Loading a site in a browser: what is kept, what is fetched again, and the sentences of what can go
wrong."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from site_fixtures import SitePage

from pteron.web import export_web, weights

Open = Callable[..., SitePage]
RUN = (
    "const program = await load(argument ?? {});"
    "const [{ name, shape }] = program.methods.forward.inputs;"
    "const inputs = { [name]: new Float32Array(shape[0] * shape[1]).fill(1) };"
    "return [Object.values(await program.run(inputs))[0].data[0], program.notes];"
)
EXPECTED = pytest.approx(-0.0838645, abs=1e-5)
HERE = {"worker": False}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Path:
    """A program whose weights are in several chunks."""
    folder = tmp_path_factory.mktemp("mlp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "CHUNK", 256)
        export_web(programs / "mlp.pte", folder, variants=["software"])
    assert len(chunks(folder)) > 3
    return folder


def chunks(folder: Path) -> list[str]:
    """The paths of the weights, in order."""
    streams = json.loads((folder / "program.json").read_bytes())["streams"]
    return [f"/{chunk['file']}" for stream in streams for chunk in stream["chunks"]]


def fetched(page: SitePage) -> Counter[str]:
    return Counter(path for path in page.server.requests if path.startswith("/weights/"))


def test_a_download_that_breaks_goes_on_where_it_was(site: Path, open_site: Open) -> None:
    page = open_site(site)
    last = chunks(site)[-1]
    page.server.change = lambda path: None if path == last else NotImplemented
    error = page.run("return failing(() => load());")
    assert error.startswith(f"download: {page.server.url[:-1]}{last} could not be fetched (")
    assert error.endswith("Is there a network? What has arrived is kept: load the page again.")
    assert fetched(page)[last] == 3  # attempts
    page.server.change = None
    page.server.requests.clear()
    assert page.run(RUN) == [EXPECTED, []]
    assert fetched(page) == {last: 1}
    page.server.requests.clear()
    assert page.run(RUN) == [EXPECTED, []]
    assert page.server.requests == ["/player.js", "/program.json"]


def test_progress(site: Path, open_site: Open) -> None:
    """Bytes are counted as they arrive, from the network and from the cache, up to all of them."""
    page = open_site(site)
    total = sum((site / path[1:]).stat().st_size for path in chunks(site))
    for _ in range(2):
        told = page.run(
            "const told = []; await load({ onProgress: (each) => told.push(each) }); return told;"
        )
        assert told[-1] == {"text": "Ready", "loaded": total, "total": total}
        counts = [each["loaded"] for each in told]
        assert counts == sorted(counts)
        assert len(set(counts)) > 3


def test_without_a_network_the_last_visit_is_used(site: Path, open_site: Open) -> None:
    page = open_site(site)
    page.run(RUN)
    page.server.change = lambda path: None
    found, notes = page.run(RUN, HERE)
    assert found == EXPECTED
    assert notes == ["There is no network: the files are those of the last visit."]


def test_damaged_chunks(site: Path, open_site: Open) -> None:
    page = open_site(site)
    first = chunks(site)[0]
    wrong = bytes(256)
    page.server.change = lambda path: wrong if path == first else NotImplemented
    error = page.run("return failing(() => load());")
    assert error == (
        f"damaged: {page.server.url[:-1]}{first} is damaged: other content. Load the page again, or export "
        "the site again."
    )
    page.server.change = lambda path: wrong[:100] if path == first else NotImplemented
    assert ": only 100 of 256 bytes. Load" in page.run("return failing(() => load());")
    answers = iter([wrong])
    page.server.change = lambda path: next(answers, NotImplemented) if path == first else NotImplemented
    assert page.run(RUN) == [EXPECTED, []]  # the second attempt
    page.run(  # what is damaged in the browser's cache is fetched again
        "const cache = await caches.open('pteron-1');"
        "await cache.put(argument, new Response(new Uint8Array(256)));",
        first,
    )
    assert page.run(RUN) == [EXPECTED, []]
    kept = page.run(
        "const cache = await caches.open('pteron-1');"
        "return [...new Uint8Array(await (await cache.match(argument)).arrayBuffer())];",
        first,
    )
    assert bytes(kept) == (site / first[1:]).read_bytes()


def test_two_tabs_fetch_once(site: Path, open_site: Open) -> None:
    page = open_site(site)
    other = open_site(site, page.server)
    for each in (page, other):
        each.run(f"window.done = (async () => {{ {RUN} }})(); return 0;")
    for each in (page, other):
        assert each.page.evaluate("window.done") == [EXPECTED, []]
    assert fetched(page) == dict.fromkeys(chunks(site), 1)


def test_files_of_an_earlier_export_are_forgotten(programs: Path, tmp_path: Path, open_site: Open) -> None:
    keys = (
        "const cache = await caches.open('pteron-1');"
        "const paths = (await cache.keys()).map(({ url }) => new URL(url).pathname);"
        "return paths.filter((path) => path.includes('/weights/'));"
    )
    export_web(programs / "mlp.pte", tmp_path, variants=["software"])
    page = open_site(tmp_path)
    page.run(RUN)
    assert page.run(keys) == chunks(tmp_path)
    before = chunks(tmp_path)
    export_web(programs / "mlp_dynamic.pte", tmp_path, variants=["software"])
    page.run("await load();")
    assert page.run(keys) == chunks(tmp_path) != before


def test_a_player_of_another_origin(site: Path, open_site: Open) -> None:
    """As from a CDN: the worker's script is a module that imports it."""
    page, other = open_site(site), open_site(site)
    other.server.is_shared = True
    found = page.run(
        "const { Pteron: same } = await import(argument + 'player.js');return (await same.load('./')).name;",
        other.server.url,
    )
    assert found == "mlp"


def test_a_full_disk(site: Path, open_site: Open) -> None:
    no_room = "Cache.prototype.put = async () => { throw new DOMException('', 'QuotaExceededError') };"
    page = open_site(site, init=no_room)
    found, notes = page.run(RUN, HERE)
    assert found == EXPECTED
    assert notes == [
        "The browser has no room to keep the model: it will be downloaded again at the next visit."
    ]


def test_without_webgpu(site: Path, open_site: Open) -> None:
    page = open_site(site, init="Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined });")
    assert page.run("return failing(() => load());") == (
        "no-webgpu: This browser has no WebGPU, which runs the model on your GPU. Use a current Chrome, "
        "Edge, Safari or Firefox."
    )
    page = open_site(site, init="GPU.prototype.requestAdapter = async () => null;")
    assert page.run("return failing(() => load({ worker: false }));").startswith(
        "no-webgpu: This browser has WebGPU, but"
    )


def changed_index(site: Path, change: Callable[[Any], None]) -> Callable[[str], Any]:
    index = json.loads((site / "program.json").read_bytes())
    change(index)
    data = json.dumps(index).encode()
    return lambda path: data if path == "/program.json" else NotImplemented


def test_indexes_and_plans_that_are_no_json(site: Path, open_site: Open) -> None:
    page = open_site(site)
    whole = (site / "program.json").read_bytes()
    page.server.change = lambda path: whole[:99] if path == "/program.json" else NotImplemented
    for _ in range(2):  # it is not kept
        assert page.run("return failing(() => load());") == (
            f"format: {page.server.url}program.json is not JSON, or only a part of it. Load the page again, "
            "or export the site again."
        )
    empty = {"file": "plans/empty.json", "bytes": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    index = changed_index(site, lambda index: index["variants"][0].update(empty))
    page.server.change = lambda path: b"{}" if path == "/plans/empty.json" else index(path)
    assert page.run("return failing(() => load());") == (
        "format: plans/empty.json has no plans for this program: export the site again."
    )


def test_a_page_that_may_keep_nothing(site: Path, open_site: Open) -> None:
    refuse = "{ get() { throw new DOMException('no', 'SecurityError'); } }"
    page = open_site(site, init=f"Object.defineProperty(globalThis, 'caches', {refuse});")
    found, notes = page.run(RUN, HERE)
    assert found == EXPECTED
    assert notes == ["The browser lets this page keep no files: the model is downloaded at every visit."]


@pytest.mark.parametrize("worker", [True, False])
def test_loading_can_be_stopped(site: Path, open_site: Open, *, worker: bool) -> None:
    """Before it begins, and while files arrive; not afterwards."""
    errors = open_site(site).run(
        "const stop = new AbortController();"
        "const options = { worker: argument, signal: stop.signal, onProgress: () => stop.abort() };"
        "const found = [await failing(() => load(options)), await failing(() => load(options))];"
        "const later = new AbortController();"
        "const program = await load({ worker: argument, signal: later.signal });"
        "later.abort();"
        "await program.reset();"
        "return found;",
        worker,
    )
    assert errors == ["stopped: Loading was stopped."] * 2


@pytest.mark.parametrize("worker", [True, False])
def test_calls_after_close(site: Path, open_site: Open, *, worker: bool) -> None:
    errors = open_site(site).run(
        "const program = await load({ worker: argument });"
        "const other = await program.sequence();"
        "await program.close();"
        "const inputs = { input_0: new Float32Array(21) };"
        "const calls = [() => program.run(inputs), () => other.run(inputs), () => program.close(),"
        "  () => program.generate('a').next()];"
        "const found = []; for (const call of calls) found.push(await failing(call)); return found;",
        worker,
    )
    assert errors == ["stopped: The program is closed."] * 4


@pytest.mark.parametrize("worker", [True, False])
def test_wrong_arguments(site: Path, open_site: Open, *, worker: bool) -> None:
    """They are sentences, and outputs on the GPU are freed as `run` gives them."""
    *errors, freed = open_site(site).run(
        "const program = await load({ worker: argument });"
        "const inputs = { input_0: new Float32Array(21) };"
        "const calls = [() => program.run(), () => program.run({ input_0: null }),"
        "  () => program.run({ input_0: '1 2' }), () => program.run(inputs, { onGpu: ['zz'] }),"
        "  () => program.free()];"
        "const found = []; for (const call of calls) found.push(await failing(call));"
        "const outputs = await program.run(inputs, { onGpu: ['output_0'] });"
        "await program.free(outputs);"
        "const again = { input_0: { ...outputs.output_0, shape: [3, 7] } };"
        "return [...found, await failing(() => program.run(again))];",
        worker,
    )
    assert errors == [
        "input: The inputs must be an object of inputs by name, not undefined.",
        "input: input_0: give numbers, or numbers with their shape {data, shape}, not null.",
        'input: input_0: give numbers, or numbers with their shape {data, shape}, not "1 2".',
        "input: onGpu: there is no output zz; the outputs are output_0.",
        "input: free takes outputs of run, not undefined.",
    ]
    assert freed == "input: input_0: this output on the GPU is freed."


def test_sites_that_cannot_run(site: Path, open_site: Open) -> None:
    """Limits that are too small, other versions, missing files, unknown names."""
    page = open_site(site)
    page.server.change = changed_index(
        site, lambda index: index["variants"][0]["needs"]["limits"].update(maxBufferSize=1 << 40)
    )
    assert page.run("return failing(() => load());") == (
        "limits: google swiftshader is too small for this model: software needs maxBufferSize "
        "1,099,511,627,776, the adapter has 1,073,741,824."
    )
    page.server.change = changed_index(site, lambda index: index.update(version=99))
    assert page.run("return failing(() => load());").startswith("format: ")
    page.server.change = None
    assert page.run("return failing(() => load({ variant: 'other' }));") == (
        "input: The site has no variant other; it has software."
    )
    assert "the server says 404" in page.run("return failing(() => Pteron.load('./nowhere/'));")
    assert page.run("return failing(async () => (await load()).run({ y: [1] }));") == (
        "input: There is no input y; the inputs are input_0."
    )
    assert page.run("return failing(async () => (await load()).generate('a').next());").endswith(
        "is not a language model."
    )
