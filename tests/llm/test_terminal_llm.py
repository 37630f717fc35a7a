"""Language models from a terminal: messages name missing files and options without effect."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pteron.cli import main
from pteron.errors import FormatError, InputError
from pteron.llm import LLM, Piece, Sampling
from pteron.llm.names.models import BUNDLED
from pteron.llm.output import Statistics
from pteron.llm.sampling_options import recommended_options
from pteron.names.model_files import GENERATION, ModelFolder

DRAWING = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """stories15M, in a folder that a test may add files to."""
    made = tmp_path / "stories"
    shutil.copytree(BUNDLED["stories15m"], made)
    return made


@pytest.fixture
def generate(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    def run(*arguments: str, tokens: int = 4) -> tuple[str, str]:
        given = ["generate", str(folder), f"--max-new-tokens={tokens}", *arguments]
        assert main(given) == 0
        printed = capsys.readouterr()
        return printed.out, printed.err

    return run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["generate", "nowhere"],
            "nowhere does not exist, and no model is called 'nowhere': known are smollm2, ",
        ),
        (["chat", "empty"], "the folder empty is empty"),
        (["generate"], "name one model: a program, a folder, a GGUF file, a built-in one such as smollm2"),
        (["generate", "a", "--model", "b"], "two models were given, a and --model b: name one"),
        (["generate", "stories15m", "Once"], "two texts were given: 'Once', and another with --prompt"),
        (["generate", "--model", "stories15m", "--tokenizer", "nowhere"], "nowhere does not exist"),
        (["export", "llm", "nowhere", "-o", "out"], "nowhere does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_missing_is_called_missing(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    prompt = [] if arguments[0] == "export" else ["--prompt", "x"]
    assert main([*arguments, *prompt]) == 1
    assert sentence in capsys.readouterr().err


def test_arguments_without_effect_are_said(generate: Callable[..., tuple[str, str]]) -> None:
    out, err = generate("--prompt", "Once", "--seed", "3", "--top-k", "5")
    assert out == "Once upon a time,\n"
    assert "--top-k and --seed have no effect at temperature 0" in err
    assert "change nothing" not in generate("--prompt", "Once", "--seed", "3", "--temperature", "0.5")[1]


def test_a_prompt_past_the_context(
    folder: Path, generate: Callable[..., tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = "the cat sat on the mat " * 45
    assert main(["generate", str(folder), "--prompt", prompt]) == 1
    said = capsys.readouterr().err
    assert "tokens, the context holds 256; shorten it, or drop the oldest" in said
    assert "(--overflow truncate)" in said
    _, said = generate("--prompt", prompt, "--overflow", "truncate")
    assert "tokens were dropped: the context holds 256" in said


def test_the_end_of_the_context_is_mentioned(generate: Callable[..., tuple[str, str]]) -> None:
    prompt = "the cat sat on the mat " * 40
    err = generate("--prompt", prompt[:1000], tokens=60)[1]
    assert "the text ends here because the context of 256 tokens is full" in err
    assert "because of --max-new-tokens 4" in generate("--prompt", "Once")[1]


@pytest.mark.long(every=2)
@pytest.mark.parametrize("command", ["generate", "chat"])
def test_a_longer_context_is_mentioned(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [command, str(folder), "--prompt", "Once upon a time", "--max-new-tokens", "60"]
    assert main([*arguments, "--context", "30"]) == 0
    assert "the context of 30 tokens is full; --context can be up to 256" in capsys.readouterr().err


@pytest.mark.long(every=3)
@pytest.mark.parametrize(
    "arguments",
    [["Once", "-n", "2"], ["-n", "2", "Once"], ["-p", "Once", "--max-tokens", "2"]],
    ids=" ".join,
)
def test_names_of_options_in_other_tools(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "stories15m", *arguments, "--quiet"]) == 0
    assert capsys.readouterr().out == "Once upon a\n"
    assert main(["chat", "stories15m", *arguments, "--quiet"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_one_token_has_no_speed(generate: Callable[..., tuple[str, str]]) -> None:
    assert "; text: 1 token; " in generate("--prompt", "Once", tokens=1)[1]
    assert re.search(r"; text: 2 tokens at [\d,.]+ tokens/s; ", generate("--prompt", "Once", tokens=2)[1])


def test_reused_tokens_are_told_from_read_ones(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["-p", "Tell me of a bird that lives in a tall tree.", "-p", "And?", "-n", "2"]
    assert main(["chat", str(folder), *asked]) == 0
    found = re.findall(
        r"prompt: (\d+) tokens? at [\d,]+ tokens/s(?: \((\d+) reused)?", capsys.readouterr().err
    )
    (first, none), (read, reused) = found
    assert none == ""
    assert 0 < int(read) < int(first) <= int(reused) + 1


def test_json(generate: Callable[..., tuple[str, str]]) -> None:
    report = json.loads(generate("--prompt", "Once", "--json")[0])
    assert report["text"] == " upon a time,"
    assert [token["text"] for token in report["tokens"]] == [" upon", " a", " time", ","]
    assert report["statistics"]["finish_reason"] == "length"


@pytest.mark.long(every=3)
@pytest.mark.parametrize("form", ["json", "file", "regex"])
def test_grammars(form: str, generate: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    pytest.importorskip("llguidance", reason="needs the extra `serve`")
    schema, file = '{"enum": ["cat", "dog"]}', tmp_path / "schema.json"
    file.write_text(schema, "utf-8")
    grammar = {
        "json": ["--json-schema", schema],
        "file": ["--json-schema", str(file)],
        "regex": ["--regex", '"(cat|dog)"'],
    }
    out, _ = generate("--prompt", "A ", "--quiet", "--presence-penalty", "0.5", *grammar[form], tokens=30)
    assert re.search(r'"(cat|dog)"', out)


def test_settings_of_a_model_are_its_defaults(folder: Path, generate: Callable[..., tuple[str, str]]) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, **DRAWING}), "utf-8")
    chosen = json.loads(generate("--prompt", "Once", "--top-p", "0.5", "--seed", "7", "--json")[0])[
        "sampling"
    ]
    given = {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.5,
        "min_p": 0.0,
        "repetition_penalty": 1.1,
        "seed": 7,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": [],
        "top_logprobs": 0,
    }
    assert chosen == given
    greedy = generate("--prompt", "Once", "--temperature", "0", "--top-k", "0", "--seed", "7", "--json")
    assert json.loads(greedy[0])["sampling"] == given | {
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 0.9,
        "seed": 0,
    }


def test_what_generation_config_says(tmp_path: Path) -> None:
    file = tmp_path / "generation_config.json"
    assert recommended_options(ModelFolder(tmp_path).read(GENERATION)) == {}
    file.write_text(json.dumps({**DRAWING, "top_k": None}), "utf-8")
    assert recommended_options(ModelFolder(tmp_path).read(GENERATION)) == {
        "temperature": 0.6,
        "top_p": 0.9,
        "repetition_penalty": 1.1,
    }
    file.write_text(json.dumps({**DRAWING, "do_sample": False}), "utf-8")
    assert recommended_options(ModelFolder(tmp_path).read(GENERATION)) == {"repetition_penalty": 1.1}
    file.write_text('{"temperature": 0.6, "repetition_penalty": 1.1}', "utf-8")  # transformers is greedy then
    assert recommended_options(ModelFolder(tmp_path).read(GENERATION)) == {"repetition_penalty": 1.1}


def test_a_generation_config_that_makes_no_sense(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"do_sample": true, "temperature": "warm"}', "utf-8")
    with pytest.raises(
        FormatError, match=r"generation_config\.json: temperature must be a number, not 'warm'"
    ):
        LLM(folder)


def test_a_conversation(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "conversation.json"
    typed = ["/help", "Hello", f"/save {saved}", "/dance", "/reset"]
    typed += [f"/save {tmp_path / 'empty.json'}", "/exit", "x"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(typed)))
    assert main(["chat", str(folder), "--max-new-tokens", "3", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert "/reset       forget the conversation" in printed.err
    assert "unknown command /dance; /help lists all" in printed.err
    messages = json.loads(saved.read_text("utf-8"))
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[1]["content"] in printed.out
    assert json.loads((tmp_path / "empty.json").read_text("utf-8")) == []


class Canned:
    """A model whose answers are fixed, and what it is asked."""

    statistics = Statistics()
    sampling, adapters = Sampling(), ("lora",)
    asked: ClassVar[list[tuple[Any, dict[str, Any]]]]

    def __init__(self, *_: object, **__: object) -> None:
        self.asked.clear()

    def __enter__(self) -> Canned:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def reset(self) -> None:
        self.asked.append(("reset", {}))

    def chat(self, messages: list[dict[str, Any]], **options: Any) -> Iterator[Piece]:
        self.asked.append(([f"{each['role']}: {each['content']}" for each in messages], options))
        if messages[-1]["content"] == "too long":
            raise InputError("it is too long")
        yield Piece(1, "Yes.", 0.0)

    def generate(self, prompt: str, **options: Any) -> Iterator[Piece]:
        self.asked.append((prompt, options))
        yield Piece(1, " upon", 0.0)
        raise KeyboardInterrupt


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    found: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.setattr(Canned, "asked", found, raising=False)
    monkeypatch.setattr("pteron.llm.LLM", Canned)
    return found


def test_what_a_conversation_asks(
    asked: list[tuple[Any, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The system prompt outlives /reset; a message that fails is left out of the next ones."""
    typed = ["One", "/reset", "", "Two", "too long", "Three", "/quit", "x"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(typed)))
    options = ["--system", "Be brief.", "--stop", "END", "--stop", "STOP", "-n", "9", "--quiet"]
    assert main(["chat", "stories15m", *options, "--temperature", "0.5", "--seed", "0"]) == 0
    system, rest = "system: Be brief.", ["user: Two", "assistant: Yes."]
    assert [messages for messages, _ in asked] == [
        [system, "user: One"],
        "reset",
        [system, "user: Two"],
        [system, *rest, "user: too long"],
        [system, *rest, "user: Three"],
    ]
    drawing = {"max_new_tokens": 9, "sampling": Sampling(temperature=0.5, seed=0), "stop": ["END", "STOP"]}
    assert asked[0][1] == drawing | {"overflow": "truncate", "adapter": "lora"}
    assert "it is too long; the conversation goes on without this message" in capsys.readouterr().err
    assert main(["chat", "stories15m", "too long", "--quiet"]) == 1  # what is given must work


def test_what_a_text_asks(
    asked: list[tuple[Any, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C ends it, with the exit code that shells know."""
    options = ["--stop", "END", "-n", "9", "--overflow", "truncate", "--quiet"]
    assert main(["generate", "stories15m", "Once", *options]) == 130
    assert capsys.readouterr().out == "Once upon …\n"
    drawing = {"max_new_tokens": 9, "sampling": Sampling(), "stop": ["END"], "overflow": "truncate"}
    assert asked == [("Once", drawing | {"grammar": None, "adapter": "lora"})]


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_bytes_on_stdin_that_are_no_text(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the locale C too, where Python lets them pass."""
    given = io.TextIOWrapper(io.BytesIO(b"Once \xff upon"), "ascii", errors="surrogateescape")
    monkeypatch.setattr(sys, "stdin", given)
    assert main([command, str(folder)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    said = "pteron: standard input is not UTF-8 text: the byte 0xff (invalid start byte)"
    assert printed.err.splitlines()[-1] == said


def test_text_on_stdin_is_utf_8(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the locale has another encoding."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Änne".encode()), "cp1252"))
    assert main(["generate", str(folder), "--quiet", "--max-new-tokens", "1"]) == 0
    assert capsys.readouterr().out.startswith("Änne")


def test_the_model_s_own_sampling_is_greedy_where_nothing_is_said(folder: Path) -> None:
    with LLM(folder) as llm:
        assert llm.sampling == Sampling()
        with pytest.raises(InputError, match="--overflow truncate"):
            llm.generate([1] * 300)


@pytest.mark.long
def test_speculation(generate: Callable[..., tuple[str, str]]) -> None:
    """By prompt lookup and with a draft model: the same text. They propose tokens where that pays."""
    prompt = ("--prompt", "Tom and Tim. Tom and Tim. Tom and")
    expected, notes = generate(*prompt, tokens=12)
    assert "proposed" not in notes
    for value in ("lookup", "stories15m"):
        text, notes = generate(*prompt, "--speculate", value, tokens=12)
        assert text == expected
        assert re.search(r"tokens/s, (no tokens proposed|\d+ of \d+ proposed accepted); ", notes)
