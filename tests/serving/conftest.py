"""Fixtures of servers: one of stories15m for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("openai")

from http_fixtures import Running, running

from pteron.llm import LLM
from pteron.llm.catalogue import BUNDLED
from pteron.serving import Engine


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    with LLM(BUNDLED["stories15m"]) as found:
        yield found


@pytest.fixture(scope="session")
def engine(llm: LLM) -> Iterator[Engine]:
    with Engine(llm) as found:
        yield found


@pytest.fixture(scope="session")
def server(engine: Engine) -> Iterator[Running]:
    with running(engine) as found:
        yield found
