"""The replica that a conversation goes to, and whether replicas fit on machines; without Ray."""

from __future__ import annotations

import json
from collections import Counter
from inspect import signature
from typing import Any

import pytest

from pteron.llm.text_model import LoadArguments
from pteron.serving.cluster import Options
from pteron.serving.cluster.options import missing_resources
from pteron.serving.cluster.routing import conversation_key, preferred_replica, rank_replicas
from pteron.serving.http import create_app

NAMES = [f"replica{index}" for index in range(5)]
SESSIONS = [f"session {index}" for index in range(500)]
BUSY = 3


def chosen(session: str, names: list[str] = NAMES, queued: dict[str, int] | None = None) -> list[list[str]]:
    return rank_replicas(session, names, lambda name: (queued or {}).get(name), BUSY)


def test_turns_of_a_conversation_go_to_one_replica() -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be kind."}]
    goals: set[str] = set()
    for turn in range(9):
        messages.append({"role": "user", "content": f"Question {turn}"})
        body = json.dumps({"model": "m", "messages": messages, "seed": turn}).encode()
        (first, *_) = chosen(conversation_key("/v1/chat/completions", body), NAMES[turn:] + NAMES[:turn])
        goals.add(*first)
        messages.append({"role": "assistant", "content": f"Answer {turn}"})
    assert len(goals) == 1


def test_conversations_are_spread() -> None:
    counts = Counter(preferred_replica(session, NAMES) for session in SESSIONS)
    assert counts.keys() == set(NAMES)
    assert min(counts.values()) > 60  # of 100 each


def test_a_replica_that_ends_moves_only_its_conversations() -> None:
    for gone in NAMES:
        left = [name for name in NAMES if name != gone]
        moved = {session: preferred_replica(session, left) for session in SESSIONS}
        for session in SESSIONS:
            before = preferred_replica(session, NAMES)
            assert moved[session] == before or before == gone
        homes = Counter(moved[session] for session in SESSIONS if preferred_replica(session, NAMES) == gone)
        assert homes.keys() == set(left)  # and not all to the same one


def test_conversations_move_only_to_a_new_replica() -> None:
    more = [*NAMES, "new"]
    moved = [
        session
        for session in SESSIONS
        if preferred_replica(session, more) != preferred_replica(session, NAMES)
    ]
    assert {preferred_replica(session, more) for session in moved} == {"new"}
    assert 50 < len(moved) < 125  # a sixth of 500 is 83


def test_an_overloaded_replica_comes_last() -> None:
    for session in SESSIONS[:50]:
        first = preferred_replica(session, NAMES)
        for count in (0, BUSY - 1):
            best, others = chosen(session, queued={first: count})
            assert best == [first]
            assert len({*others, first}) == 3
        for count in (BUSY, BUSY + 9):
            others, last = chosen(session, queued={first: count})
            assert last == [first]  # if the others are full
            assert len({*others, first}) == 3


def test_conversations_of_an_overloaded_replica_are_spread() -> None:
    (first,) = {preferred_replica("one", NAMES)}
    counts = Counter(name for _ in range(300) for name in chosen("one", queued={first: BUSY})[0])
    assert counts.keys() == set(NAMES) - {first}


def test_requests_without_a_conversation_are_spread() -> None:
    pairs = [chosen("") for _ in range(300)]
    assert all(len(set(pair)) == 2 for (pair,) in pairs)
    assert Counter(name for (pair,) in pairs for name in pair).keys() == set(NAMES)


def test_few_replicas() -> None:
    assert chosen("one", []) == chosen("", []) == []
    assert chosen("one", ["a"]) == chosen("", ["a"]) == chosen("one", ["a"], {"a": BUSY}) == [["a"]]
    first = preferred_replica("one", ["a", "b"])
    assert sorted(map(str, chosen("one", ["a", "b"]))) == ["['a']", "['b']"]
    assert chosen("one", ["a", "b"])[0] == [first]


CHAT = "/v1/chat/completions"
SYSTEM, USER = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}


def chat_key(*messages: Any, **more: Any) -> str:
    return conversation_key(CHAT, json.dumps({"model": "m", "messages": messages, **more}).encode())


def test_other_conversations_have_other_keys() -> None:
    keys = {
        chat_key(SYSTEM, USER),
        chat_key(SYSTEM, {**USER, "content": "Hello you"}),
        chat_key({**SYSTEM, "content": "Be rude."}, USER),
        chat_key(USER),
        chat_key(SYSTEM),
        chat_key(SYSTEM, USER, tools=[{"type": "function"}]),
    }
    assert len(keys) == 6
    assert chat_key(SYSTEM, USER) == chat_key(SYSTEM, USER, temperature=1.0, stream=True)


def test_keys_of_completions() -> None:
    def key(prompt: Any) -> str:
        return conversation_key("/v1/completions", json.dumps({"model": "m", "prompt": prompt}).encode())

    long = "It was a dark and stormy night. " * 20
    assert key(long) == key(long + "And") == key([long, "other"])
    assert key(long) != key("And" + long)
    assert key([1, 2, 3]) == key([[1, 2, 3], [4]])
    assert conversation_key("/v1/models", b'{"prompt": "a"}') == ""


def test_keys_of_other_apis() -> None:
    def key(path: str, **body: Any) -> str:
        return conversation_key(path, json.dumps({"model": "m", **body}).encode())

    later = {"role": "user", "content": "And now?"}
    for path in ("/v1/messages", "/api/chat"):
        assert key(path, messages=[USER]) == key(path, messages=[USER, later]) != ""
        assert key(path, messages=[USER], system="A") != key(path, messages=[USER], system="B")
    path = "/v1/responses"
    assert key(path, input="Hello") == key(path, input=[USER, later]) != key(path, input="Other")
    assert key("/api/generate", prompt="Hello") != ""
    assert key("/v1/messages/count_tokens", messages=[USER]) == ""
    assert key(path, input="a", instructions="A") != key(path, input="a", instructions="B")
    assert key(path, input="a") != key(path, input="a", model="other")


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"null", b"{}", b'{"messages": 5}', b'{"prompt": {}}', b"[" * 100_000, b"\xff"),
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',  # which the replica refuses
    ],
)
def test_invalid_bodies_have_no_key(body: bytes) -> None:
    assert conversation_key(CHAT, body) == ""


def test_options_are_all_that_models_and_applications_take() -> None:
    """Except those that a replica chooses itself."""
    options = Options("m", "n", sequences=3, open_page=False, api_keys=("k",), digits=2)
    given = {
        name for name, each in signature(create_app).parameters.items() if each.kind is each.KEYWORD_ONLY
    }
    assert options.app_settings.keys() == given - {"keep_alive", "logs", "traces"}
    assert options.model_settings.keys() == {"tokenizer", *LoadArguments.__optional_keys__} - {"device"}
    for name, value in (options.app_settings | options.model_settings).items():
        assert value == getattr(options, name)


# Machines ---------------------------------------------------------------------------------------

SMALL: dict[str, float] = {"CPU": 2.0, "memory": 1e9}
LARGE: dict[str, float] = {"CPU": 8.0, "GPU": 2.0}


@pytest.mark.parametrize(
    ("asked", "machines", "said"),
    [
        ({}, [SMALL], None),
        ({"replicas": 2}, [SMALL], None),
        ({"replicas": 3}, [SMALL], "each of 3 replicas needs 1 CPU; there is room for 2: the machine has 2"),
        ({"replicas": (1, 9)}, [SMALL], None),  # as many as fit
        ({"replicas": 3, "cpus": 1.5}, [SMALL, LARGE], None),  # a replica cannot span two machines
        ({"replicas": 99, "cpus": 0}, [SMALL], None),
        (
            {"gpus": 1},
            [SMALL],
            "a replica needs 1 GPU and 1 CPU; there is room for 0: the machine has no GPU and 2 CPUs",
        ),
        ({"gpus": 1}, [SMALL, LARGE], None),
        (
            {"gpus": 1, "replicas": 3, "cpus": 0},
            [SMALL, LARGE],
            "each of 3 replicas needs 1 GPU; there is room for 2: 2 machines have no GPU; 2 GPUs",
        ),
        ({"gpus": 0.1, "replicas": 20, "cpus": 0}, [LARGE], None),
        ({"gpus": 4}, [LARGE, LARGE], "room for 0"),
        ({}, [], "a replica needs 1 CPU; there is room for 0: 0 machines have nothing"),
    ],
    ids=str,
)
def test_room(asked: dict[str, Any], machines: list[dict[str, float]], said: str | None) -> None:
    found = missing_resources(Options("m", "n", **asked), machines)
    assert (found is None) == (said is None)
    assert (said or "") in (found or "")
