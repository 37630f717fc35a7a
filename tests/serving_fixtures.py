"""Servers for tests/serving: one of stories15m for all. What it takes is imported where it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pteron.llm import LLM
from pteron.llm.models import BUNDLED
from pteron.serving import Engine

if TYPE_CHECKING:
    from http_fixtures import Running


@pytest.fixture(scope="session")
def stories() -> Iterator[LLM]:
    with LLM(BUNDLED["stories15m"]) as made:
        yield made


@pytest.fixture(scope="session")
def stories_engine(stories: LLM) -> Iterator[Engine]:
    with Engine(stories) as made:
        yield made


@pytest.fixture(scope="session")
def server(stories_engine: Engine) -> Iterator[Running]:
    from http_fixtures import running

    with running(stories_engine) as made:
        yield made
