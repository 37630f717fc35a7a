"""Two replicas on two nodes of a cluster of Ray, all of them on this machine: the tests of one server, and
those of a cluster. Not those that make a server of their own (test_http_access, test_http_tools) or read a
process's own log and metrics (test_http_status): replicas run that very application.

scripts/test --ray
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

pytest.importorskip("ray", reason="needs the extra `ray`: scripts/test --ray")
pytest.importorskip("openai", reason="needs the official client")

import openai
import ray
import test_http_cancel
import test_http_embeddings
import test_http_errors
import test_http_json
import test_http_logprobs
import test_http_many
import test_http_text
from http_fixtures import NAME, openai_client, until
from letters import write_letters
from ray_fixtures import PATIENCE, SLOW, Served, application, cluster, shared
from tool_fixtures import TEMPLATES, with_template

from pteron.llm import LLM
from pteron.serving.cluster import Options

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

SEQUENCES = 4
ANIMALS = ("cat", "dog", "cow", "pig", "hen", "fox", "bear", "wolf", "bird", "frog", "fish", "ant")
COUNTS = "counts by the engine of its own process"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with cluster(2) as made:
        yield made


@pytest.fixture(scope="module")
def server(address: str) -> Iterator[Served]:
    """The model, with room for one replica on each node."""
    options = Options(NAME, NAME, replicas=2, sequences=SEQUENCES, page=False, is_quiet=True)
    with application(address, "stories", options, "/stories") as made:
        yield made


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    address = f"{server.address}/v1"
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0, timeout=PATIENCE) as made:
        yield made


@TEMPLATES
def templated(
    request: pytest.FixtureRequest, address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """The model with a chat template. It shares the nodes' CPUs with the other replicas."""
    folder = with_template(tmp_path_factory.mktemp("templated"), request.param)
    options = Options(str(folder), NAME, sequences=SEQUENCES, cpus=0, page=False, is_quiet=True)
    with application(address, "templated", options, "/templated") as made:
        yield made


def said(client: openai.OpenAI, prompt: str, count: int, is_streamed: bool) -> str:
    asked: Any = {"model": NAME, "prompt": prompt, "max_tokens": count}
    if not is_streamed:
        return str(client.completions.create(**asked).choices[0].text)
    return "".join(chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True))


def test_each_node_has_a_replica(server: Served) -> None:
    assert len({replica.node_id for replica in server.replicas()}) == 2
    assert server.http.get("/health").json()["status"] == "ok"


TestText = shared(test_http_text, {})
TestJson = shared(test_http_json, {})
TestLogprobs = shared(test_http_logprobs, {})
TestErrors = shared(test_http_errors, {})
TestMany = shared(test_http_many, {})
TestCancel = shared(
    test_http_cancel,
    {
        "test_a_client_that_leaves_a_stream_frees_its_sequence": COUNTS,  # as below, by all replicas
        "test_a_client_that_leaves_before_the_answer_frees_its_sequences": COUNTS,
    },
)


TestLiteLLM = test_http_many.TestLiteLLM


OF_ONE = {"test_other_dimensions_are_refused_after_the_first_text": COUNTS}


class TestEmbeddings(shared(test_http_embeddings, OF_ONE)):  # type: ignore[misc]
    """An encoder as a replica: the tests' own table of letters, in a program."""

    @pytest.fixture(scope="class")
    def server(self, address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
        folder = tmp_path_factory.mktemp("letters")
        write_letters(folder)
        options = Options(str(folder), NAME, replicas=2, cpus=0, page=False, is_quiet=True)
        with application(address, "letters", options, "/letters") as made:
            yield made


def test_a_conversation_stays_where_it_was_read(client: openai.OpenAI) -> None:
    """The second turn goes to the replica that has the first in its prefix cache. With this many
    conversations, random routing would miss it at least once."""
    for animal in ANIMALS:
        messages: list[Any] = [{"role": "user", "content": f"I am a {animal}. Tell me about your day."}]
        read = 0
        for _ in range(2):
            answer = client.chat.completions.create(model=NAME, messages=messages, max_tokens=9)
            assert answer.usage is not None
            assert answer.usage.prompt_tokens_details is not None
            cached = answer.usage.prompt_tokens_details.cached_tokens
            assert cached is not None
            assert cached >= read  # all of the last turn's prompt
            read = answer.usage.prompt_tokens
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})
            messages.append({"role": "user", "content": "Go on."})


def test_a_client_that_leaves_frees_its_sequence(client: openai.OpenAI, server: Served) -> None:
    for index in range(2 * SEQUENCES):
        stream = client.completions.create(model=NAME, prompt=f"{index} times", max_tokens=200, stream=True)
        next(iter(stream))
        stream.close()
    server.settle()


def test_a_replica_is_killed_under_load(client: openai.OpenAI, server: Served, stories: LLM) -> None:
    """Every request is answered at the first try or the second, and as it would be alone; none hangs."""
    victim, *_ = server.replicas()
    prompts = [f"One day, {name} went to the" for name in ("Tom", "Lily", "Ben", "Sue", "Max", "Mia")] * 4
    is_begun = threading.Event()
    tries = [0] * len(prompts)

    def ask(index: int) -> str:
        for last in (False, True):
            tries[index] += 1
            try:
                text = said(client, prompts[index], 40, index % 2 == 0)
                is_begun.set()
                return text
            except openai.APIError:
                if last:
                    raise
        raise AssertionError

    with ThreadPoolExecutor(6) as threads:
        asking = [threads.submit(ask, index) for index in range(len(prompts))]
        assert is_begun.wait(PATIENCE)
        ray.kill(ray.get_actor(victim.actor_name, namespace="serve"))
        found = [each.result(PATIENCE) for each in asking]
    alone = {prompt: stories(prompt, max_new_tokens=40) for prompt in set(prompts)}
    assert found == [alone[prompt] for prompt in prompts]
    assert max(tries) <= 2

    def is_replaced() -> bool:
        running = server.replicas()
        return len(running) == 2 and victim.replica_id not in {each.replica_id for each in running}

    until(is_replaced, PATIENCE)
    assert said(client, prompts[0], 5, True) == stories(prompts[0], max_new_tokens=5)


def test_replicas_follow_the_requests(address: str, stories: LLM) -> None:
    """Four clients where one is enough for a replica bring a second; it goes with them, unnoticed."""
    options = Options(
        *(NAME, NAME), replicas=(1, 2), sequences=1, cpus=0, more_seconds=1.0, fewer_seconds=2.0,
        page=False, is_quiet=True,
    )  # fmt: skip
    with application(address, "scaled", options, "/scaled") as served:
        client = openai_client(served)
        assert len(served.replicas()) == 1
        is_enough = threading.Event()

        def ask(animal: str) -> set[str]:
            texts = set()
            while not is_enough.is_set():
                texts.add(said(client, f"The {animal}", 40, True))
            return texts

        with ThreadPoolExecutor(4) as threads:
            asking = [threads.submit(ask, animal) for animal in ANIMALS[:4]]
            try:
                until(lambda: len(served.replicas()) == 2, PATIENCE)
            finally:
                is_enough.set()
            for animal, texts in zip(ANIMALS, asking, strict=False):
                assert texts.result(PATIENCE) == {stories(f"The {animal}", max_new_tokens=40)}
        expected = stories("The hen", max_new_tokens=5)

        def is_one_again() -> bool:
            assert said(client, "The hen", 5, False) == expected
            return len(served.replicas()) == 1

        until(is_one_again, PATIENCE)


def test_several_models(address: str, stories: LLM, tmp_path: Path) -> None:
    """A language model and an encoder; each replica loads what its requests name."""
    write_letters(tmp_path)
    more = {"letters": str(tmp_path)}
    options = Options(NAME, NAME, more_models=more, replicas=2, cpus=0, page=False, is_quiet=True)
    with application(address, "several", options, "/several") as served, openai_client(served) as client:
        assert [model.id for model in client.models.list()] == [NAME, "letters"]
        assert said(client, "The cat", 7, True) == stories("The cat", max_new_tokens=7)
        found = client.embeddings.create(model="letters", input=["a", "b"]).data
        assert found[0].embedding != found[1].embedding
        with pytest.raises(openai.NotFoundError, match="letters"):  # it names the models that are there
            client.completions.create(model="none", prompt="The cat")


def command(*options: str) -> subprocess.Popen[str]:
    """pteron serve --ray, as a process."""
    given = [sys.executable, "-m", "pteron", "serve", NAME, "--ray", "--port", "0", "--quiet", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(given, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **SLOW})


@contextmanager
def saying(made: subprocess.Popen[str], stream: IO[str] | None, words: str) -> Iterator[str]:
    """The line in which a process says something; it is ended, and must end well, by a signal."""
    assert stream is not None
    try:
        line = next((line for line in stream if words in line), None)
        if line is None:
            raise TimeoutError(f"it ended with {made.wait(PATIENCE)}")
        yield line
        made.send_signal(signal.SIGTERM)
        made.communicate(timeout=PATIENCE)
        assert made.returncode == 0
    finally:
        made.kill()
        made.communicate()


@pytest.mark.usefixtures("address")
def test_a_cluster_without_a_gpu_is_waited_for() -> None:
    """It may get a machine that has one; until then its user knows."""
    made = command("--replica-gpus", "1", "--ray-address", ray.get_runtime_context().gcs_address)
    with saying(made, made.stderr, "is not served yet") as line:
        assert "a replica needs 1 GPU and 1 CPU; there is room for 0: 2 machines have" in line


def test_a_machine_without_a_gpu_is_refused() -> None:
    made = command("--replica-gpus", "1")
    _, printed = made.communicate(timeout=PATIENCE)
    assert made.returncode == 1
    assert "cannot be served on this machine: a replica needs 1 GPU and 1 CPU; there is room for 0" in printed


def test_the_command(stories: LLM) -> None:
    """A cluster of its own, which ends with it."""
    for is_last in (False, False, True):
        made = command()
        try:
            with (
                saying(made, made.stdout, "is served at") as line,
                openai.OpenAI(base_url=f"{line.split()[-1]}/v1", api_key="none", timeout=PATIENCE) as client,
            ):
                assert said(client, "The cat", 7, True) == stories("The cat", max_new_tokens=7)
            return
        except TimeoutError:  # its node did not start in time: see `started`
            if is_last:
                raise
