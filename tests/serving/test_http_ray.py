"""Two replicas on two nodes of a cluster of Ray, all of them on this machine, and one of them killed.

scripts/test --ray
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra `ray`: scripts/test --ray")
pytest.importorskip("openai", reason="needs the official client")

import httpx
import openai
import ray
from http_fixtures import NAME
from test_http_text import (  # noqa: F401  # the same tests, of this module's client
    test_a_chat_is_what_the_model_says_alone,
    test_a_completion_is_what_the_model_says_alone,
    test_a_streamed_chat_equals_one_that_is_not,
    test_a_streamed_completion_equals_one_that_is_not,
    test_equal_seeds_draw_equal_texts,
    test_several_answers_to_one_prompt,
    test_stop_strings_end_an_answer,
    test_tokens_are_a_prompt_too,
)

from pteron.llm import LLM

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

PATIENCE = 120.0  # seconds that nothing takes: who waits longer hangs
SEQUENCES = 4
ANIMALS = ("cat", "dog", "cow", "pig", "hen", "fox", "bear", "wolf", "bird", "frog", "fish", "ant")
SLOW = {  # a busy machine is no sick one
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where a cluster of two nodes, each with room for one replica, serves the model."""
    os.environ.update(SLOW)
    from ray import serve
    from ray.cluster_utils import Cluster

    from pteron.serving.cluster import Options, build

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 100 << 20}
    cluster = started(lambda: Cluster(True, head_node_args={**node, "include_dashboard": False}))
    try:
        started(lambda: cluster.add_node(**node))
        ray.init(address=cluster.address, log_to_driver=False)
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        options = Options(NAME, NAME, replicas=2, sequences=SEQUENCES, page=False, is_quiet=True)
        serve.run(build(options), name="pteron")
        yield f"http://127.0.0.1:{port}"
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()


def started(start: Callable[[], Any]) -> Any:
    """A node that starts within Ray's 30 seconds, which a busy machine may not manage at once."""
    for _ in range(2):
        with suppress(Exception):  # a plain one is what Ray raises
            return start()
    return start()


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as made:
        yield made


def replicas() -> list[Any]:
    """The replicas that run now."""
    from ray.serve.context import _get_global_client

    found = ray.get(_get_global_client()._controller._all_running_replicas.remote(), timeout=PATIENCE)
    return [
        replica for deployment, listed in found.items() if deployment.name == "replica" for replica in listed
    ]


def until(happened: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


def said(client: openai.OpenAI, prompt: str, count: int, is_streamed: bool) -> str:
    asked: Any = {"model": NAME, "prompt": prompt, "max_tokens": count}
    if not is_streamed:
        return str(client.completions.create(**asked).choices[0].text)
    return "".join(chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True))


def test_there_is_one_on_each_node(address: str) -> None:
    assert len({replica.node_id for replica in replicas()}) == 2
    assert httpx.get(f"{address}/health", timeout=PATIENCE).json()["status"] == "ok"


def test_many_clients_get_what_they_would_get_alone(client: openai.OpenAI, stories: LLM) -> None:
    prompts = [f"The {animal} was" for animal in ANIMALS]
    with ThreadPoolExecutor(len(prompts)) as threads:
        found = list(
            threads.map(lambda pair: said(client, pair[1], 17, pair[0] % 2 == 0), enumerate(prompts))
        )
    assert found == [stories(prompt, max_new_tokens=17) for prompt in prompts]


def test_a_conversation_stays_where_it_was_read(client: openai.OpenAI) -> None:
    """Of so many, chance would not bring all second turns there."""
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


def test_a_client_that_leaves_frees_its_sequence(client: openai.OpenAI, address: str) -> None:
    for index in range(2 * SEQUENCES):
        stream = client.completions.create(model=NAME, prompt=f"{index} times", max_tokens=200, stream=True)
        next(iter(stream))
        stream.close()

    def is_idle() -> bool:
        loads = [httpx.get(f"{address}/health", timeout=PATIENCE).json() for _ in range(8)]  # of either
        return not any(load["running"] or load["waiting"] for load in loads)

    until(is_idle)


def test_errors_come_through(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.completions.create(model="another", prompt="a")
    assert refused.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=NAME, prompt="a", max_tokens=-1)


def test_one_is_killed_under_load(client: openai.OpenAI, stories: LLM) -> None:
    """Every request is answered at the first try or the second, and as it would be alone; none hangs."""
    victim, *_ = replicas()
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
    until(lambda: len(replicas()) == 2 and victim.replica_id not in {each.replica_id for each in replicas()})
    assert said(client, prompts[0], 5, True) == stories(prompts[0], max_new_tokens=5)


def test_the_command(stories: LLM) -> None:
    """A cluster of its own, which ends with it."""
    command = [sys.executable, "-m", "pteron", "serve", NAME, "--ray", "--port", "0", "--quiet"]

    def start() -> tuple[Any, str]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **SLOW})
        assert process.stdout is not None
        try:
            return process, next(line for line in process.stdout if "is served at" in line)
        except StopIteration:
            raise TimeoutError(f"it ended with {process.wait(PATIENCE)}") from None

    process, said_at = started(start)
    try:
        address = said_at.split()[-1]
        with openai.OpenAI(base_url=f"{address}/v1", api_key="none", timeout=PATIENCE) as client:
            assert said(client, "The cat", 7, True) == stories("The cat", max_new_tokens=7)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
