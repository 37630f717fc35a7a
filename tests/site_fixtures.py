"""Sites of `pteron export web` in a browser: a server for their files, and Chromium with WebGPU on a software
adapter."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_fixtures import NAMES, TIMEOUT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

WEBGPU = ("--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder; `change` may replace the answer of a path: bytes, or None for a connection that
    breaks."""

    def __init__(self, *args: Any, site: SiteServer, **kwargs: Any) -> None:
        self.site = site
        super().__init__(*args, directory=str(site.folder), **kwargs)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.site.requests.append(path)
        if self.site.change is not None:
            data = self.site.change(path)
            if data is None:
                self.close_connection = True
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                return
            if data is not NotImplemented:
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                return
        super().do_GET()

    def end_headers(self) -> None:
        if self.site.is_shared:
            self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class SiteServer:
    """A site at http://localhost, and the paths that were requested."""

    folder: Path
    change: Callable[[str], Any] | None = (
        None  # of a path: its bytes, None to break off, NotImplemented: the file
    )
    requests: list[str] = field(default_factory=list)
    is_shared: bool = False  # with pages of other origins

    def __post_init__(self) -> None:
        handler = partial(_Handler, site=self)
        self._server = ThreadingHTTPServer(("localhost", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://localhost:{self._server.server_address[1]}/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def gpu_browser() -> Iterator[Browser]:
    """Chromium with WebGPU on SwiftShader."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium (on Debian: apt install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=[*WEBGPU])
        yield browser
        browser.close()


@dataclass
class SitePage:
    """A page with the player of a site, without the site's own page."""

    page: Page
    server: SiteServer

    @classmethod
    def open(cls, context: BrowserContext, server: SiteServer, init: str = "") -> SitePage:
        """Open an empty page of a site; `init` is a script that runs first."""
        page = context.new_page()
        page.set_default_timeout(TIMEOUT)
        if init:
            page.add_init_script(init)
        page.goto(f"{server.url}player.d.ts")
        return cls(page, server)

    def run(self, script: str, argument: Any = None) -> Any:
        """What an async function body returns; `Pteron` is the player, `load` loads the site."""
        body = f"""async (argument) => {{
            const {{ Pteron, PteronError }} = await import("./player.js");
            const load = (options) => Pteron.load("./", options);
            const failing = async (work) => {{
                try {{
                    await work();
                    return "no error";
                }} catch (error) {{
                    return `${{error.code}}: ${{error.message}}`;
                }}
            }};
            {script}
        }}"""
        return self.page.evaluate(body, argument)


@pytest.fixture
def open_site(gpu_browser: Browser) -> Iterator[Callable[..., SitePage]]:
    """Serves a folder and opens an empty page beside its player; pages of one test share the browser's
    cache."""
    context = gpu_browser.new_context()
    servers: list[SiteServer] = []

    def open_folder(folder: Path, server: SiteServer | None = None, init: str = "") -> SitePage:
        if server is None:
            server = SiteServer(folder)
            servers.append(server)
        return SitePage.open(context, server, init)

    yield open_folder
    context.close()
    for server in servers:
        server.close()
