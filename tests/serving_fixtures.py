"""Servers for tests/serving, shared by all tests: one of stories15m, one with scripted answers. Optional
packages are imported inside the fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pteron.llm import LLM
from pteron.llm.names.models import BUNDLED
from pteron.serving import Engine

if TYPE_CHECKING:
    import openai
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


@pytest.fixture(scope="module")
def client(server: Running) -> openai.OpenAI:
    from http_fixtures import openai_client

    return openai_client(server)


@pytest.fixture
def scripted(_scripted_server: Running) -> Running:
    """A server whose answers tests set with `scripted.play`; all are "Once" at first."""
    from scripted import Script, play

    play(_scripted_server, Script(["Once"]))
    return _scripted_server


@pytest.fixture(scope="session")
def _scripted_server(stories: LLM) -> Iterator[Running]:
    from http_fixtures import running
    from scripted import Script, ScriptedEngine

    with running(ScriptedEngine(stories, lambda _: Script(["Once"])), page=True) as made:
        yield made
