"""Fixtures that many tests share: the folders of programs, and the machine's device."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeGuard, TypeVar
from weakref import WeakKeyDictionary

import pytest
from browser_fixtures import browser, open_page  # noqa: F401  # fixtures of tests/browser
from chat_fixtures import canned_address, chat, phone, tab  # noqa: F401  # fixtures of tests/browser
from compile_fixtures import (  # noqa: F401  # fixtures of tests that compile
    compiled_folder,
    lowerings,
    without_patterns,
)
from encoder_fixtures import encoding, library  # noqa: F401  # fixtures of tests that submit
from engine_fixtures import bursts, engine, tiny_llm, watched  # noqa: F401  # fixtures of tests/serving
from hypothesis import settings
from kernel_fixtures import (  # noqa: F401  # fixtures of tests/gpu
    _found_plans_equal_made_ones,
    _in_browsers,
    _measured,
    launches,
    measuring,
)
from llm_fixtures import (  # noqa: F401  # fixtures of tests/llm
    _shared_llm,
    _shared_routed_llm,
    llm,
    on_route,
    q4,
    routed_llm,
)
from serving_fixtures import (  # noqa: F401  # fixtures of tests/serving
    _scripted_server,
    client,
    scripted,
    server,
    stories,
    stories_engine,
)
from site_fixtures import gpu_browser, open_site  # noqa: F401  # fixtures of tests/browser
from skips import is_listed
from subgroup_fixtures import (  # noqa: F401  # fixtures of tests/gpu
    anywhere,
    few,
    launched,
    own_subgroups,
    subgroups,
    width,
)

from pteron import Device
from pteron.ops import Target
from pteron.ops.rewrite import JOINS, REWRITES
from pteron.passes.rewrite import REWRITES_VARIABLE, switched_on
from pteron.runtime.loaded_method import PRODUCTS_VARIABLE
from pteron.system import give_back_memory

# Numbers of language models are compared as exactly on GPUs as on software adapters.
os.environ.setdefault(PRODUCTS_VARIABLE, "f32")
settings.register_profile("pteron", deadline=None)  # a busy machine may take longer than 200 ms
settings.load_profile("pteron")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

FIXTURES = Path(__file__).parent / "fixtures"
STORAGE_BUFFERS = Target().buffers_max  # those of every device, whatever this one has


ROUTES = ("software", "hardware")  # kernels without barriers, for CPUs; kernels for GPUs
# Folders of the long tail: fuzzing, soak, browsers.
LONG_FOLDERS = ("browser", "dawn", "fuzz", "soak")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        help="the long tail too: `long` tests, both kernel routes of every case, Dawn, browsers, fuzzing",
    )
    parser.addoption(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="every N-th case of each test (with --all: of the long tail); an odd number, because cases "
        "alternate between kernel routes",
    )
    parser.addoption(
        "--strict-skips", action="store_true", help="tests skipped for reasons not in tests/skips.py fail"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_long = collection_path.parent == Path(__file__).parent and collection_path.name in LONG_FOLDERS
    return True if is_long and not config.getoption("--all") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without garbage collection: what is imported and collected stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --all, drop tests marked `long`, run every n-th case of those marked `long(every=n)`, and run
    each case of a test with the fixture `target` on one kernel route. Cases alternate between the routes; a
    test of a single case runs on both. With --every, keep some of these cases; with both, all of them and
    some of the others."""
    short, every = _shortened(items), config.getoption("--every")
    always = set(short) if config.getoption("--all") else set()
    others = [item for item in items if item not in always] if config.getoption("--all") else short
    chosen = always | {item for item, number in _numbered(others) if number % every == 0}
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def _numbered(items: Iterable[pytest.Item]) -> Iterator[tuple[pytest.Item, int]]:
    """Each case with its number among those of its test."""
    seen = Counter[str]()
    for item in items:
        name = item.nodeid.partition("[")[0]
        yield item, seen[name]
        seen[name] += 1


def _shortened(items: list[pytest.Item]) -> list[pytest.Item]:
    """The cases without the long tail."""
    cases: dict[str, dict[str, int]] = {}  # by test: its cases without their route, numbered
    routes: dict[pytest.Item, str] = {
        item: str(item.callspec.params["target"]) for item in items if _has_route(item)
    }
    for routed, route in routes.items():
        numbers = cases.setdefault(routed.nodeid.partition("[")[0], {})
        numbers.setdefault(routed.nodeid.replace(route, ""), len(numbers))

    def is_on_its_route(item: pytest.Item) -> bool:
        route = routes.get(item)
        if route is None:
            return True
        numbers = cases[item.nodeid.partition("[")[0]]
        # By the bits of its number: by odd and even, a parameter of two or four values would fix the route.
        return len(numbers) == 1 or ROUTES[numbers[item.nodeid.replace(route, "")].bit_count() % 2] == route

    def is_short(item: pytest.Item, number: int) -> bool:
        long = item.get_closest_marker("long")
        return long is None or bool(long.kwargs and number % long.kwargs["every"] == 0)

    on_routes = filter(is_on_its_route, items)
    return [item for item, number in _numbered(on_routes) if is_short(item, number)]


@pytest.fixture(scope="module", autouse=True)
def _modules_are_not_garbage() -> None:
    """Keep what outlives a test module, such as PyTorch and the collected tests, out of later collections:
    among a million objects, each `gc.collect()` of a test would take half a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return _without_unlisted_skips(report, item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _without_unlisted_skips(report, collector.config)


def _without_unlisted_skips(report: Report, config: pytest.Config) -> Report:
    """With --strict-skips, a test that is skipped for a reason that `skips.py` does not list fails."""
    if config.getoption("--strict-skips") and report.outcome == "skipped":
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not is_listed(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped for a reason that tests/skips.py does not list: {reason}"
    return report


KERNELS_MET = 128  # kernels compiled from one release to the next: Mesa and LLVM hold 1 to 3 MB for each
Device.recent_kernel_bytes = 128 << 20  # the next test often has the kernels of the last
_compiled = WeakKeyDictionary[Device, int]()  # when kernels were released last


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Release the kernels of programs that tests did not close, if tests have compiled many."""
    try:
        return (yield)
    finally:
        _release_kernels()


def _release_kernels() -> None:
    for device in list(Device._shared.values()):
        if device.is_open and device.compiled - _compiled.get(device, 0) > KERNELS_MET:
            _compiled[device] = device.compiled
            gc.collect()
            device.release_kernels()
            device.poll(wait=True)  # wgpu releases what nobody refers to
            give_back_memory()  # LLVM leaves its heap in pieces


def _has_route(item: pytest.Item) -> TypeGuard[pytest.Function]:
    """Whether a test is parametrised over kernel routes by the fixture `target`."""
    return hasattr(item, "callspec") and item.callspec.params.get("target") in ROUTES


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that look at what rewrites make need all of them; all others run with whichever are on."""
    if item.get_closest_marker("rewrites") and len(switched_on()) < len(REWRITES) + len(JOINS):
        value = os.environ[REWRITES_VARIABLE]
        pytest.skip(f"looks at what rewrites make, and {REWRITES_VARIABLE}={value} switches some off")


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of small exported programs with their goldens."""
    return FIXTURES / "programs"


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of tiny language models with their goldens."""
    return FIXTURES / "models"


@pytest.fixture(scope="session")
def device() -> Device:
    """The shared device, on which programs are loaded by default."""
    return Device.open()


def as_route(device: Device, route: str) -> Target:
    return replace(device.target, is_cpu=route == "software", buffers_max=STORAGE_BUFFERS)


@pytest.fixture(params=ROUTES)
def target(request: pytest.FixtureRequest, device: Device) -> Target:
    """The device as if it were a CPU, and as if it were not: kernels of both kinds run on any adapter."""
    return as_route(device, request.param)


@pytest.fixture
def slots_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small limit of bindings concerns weights and the parts of launches, not activations."""
    monkeypatch.setattr(Target, "slot_bytes_max", 1 << 30)


@dataclass(frozen=True)
class Routes:
    """The targets of a test that loops over its cases (`each` of tests/gpu/check.py)."""

    targets: list[Target]
    is_all: bool  # whether each case runs on both routes, or cases alternate between them

    def of_case(self, index: int) -> list[dict[str, Target]]:
        return [{"target": each} for each in (self.targets if self.is_all else [self.targets[index % 2]])]


@pytest.fixture
def is_whole(request: pytest.FixtureRequest) -> bool:
    """Whether the whole long tail is run."""
    return bool(request.config.getoption("--all") and request.config.getoption("--every") == 1)


@pytest.fixture
def routes(device: Device, is_whole: bool) -> Routes:
    return Routes([as_route(device, route) for route in ROUTES], is_whole)
