"""docs/serve.md names existing options, limits and metrics, with their values."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from http_fixtures import NAME, Running
from prometheus_client.parser import text_string_to_metric_families

from pteron.cli import build_parser
from pteron.llm.arguments import SEQUENCES_MAX
from pteron.serving.http import Limits

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text("utf-8")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def options() -> dict[str, argparse.Action]:
    commands = build_parser(["serve"])._get_positional_actions()[0].choices
    assert isinstance(commands, dict)
    return {flag: action for action in commands["serve"]._actions for flag in action.option_strings}


def test_options_exist() -> None:
    named = set(re.findall(r"(--[a-z][a-z-]+)", re.sub(r"`benchmarks/serve.py.*", "", PAGE, flags=re.DOTALL)))
    assert len(named) > 15
    assert named <= options().keys()


def test_limits_have_these_values() -> None:
    rows = re.findall(r"^\| `(--[a-z-]+)` \| ([\d.]+)(?: (\w+))? \|", PAGE, re.MULTILINE)
    assert len(rows) == 9
    limits, known = Limits(), options()
    for option, number, unit in rows:
        value = float(number) * UNITS.get(unit, 1)
        name = option.removeprefix("--max-").replace("-", "_")
        if option.startswith("--max-"):
            assert getattr(limits, name) == value, option
        else:
            assert value == (SEQUENCES_MAX if option == "--sequences" else known[option].default), option
    prose = (
        f"{limits.stops} stop strings of {limits.stop_characters} characters, {limits.schema_bytes >> 10} KiB"
    )
    assert prose in PAGE
    assert f"{limits.inputs} texts" in PAGE
    assert f"{limits.body_seconds:g} seconds to arrive" in PAGE


def test_metrics_are_all_named(scripted: Running) -> None:
    scripted.http.post("/v1/completions", json={"model": NAME, "prompt": "Hi"})
    families = list(text_string_to_metric_families(scripted.http.get("/metrics").text))
    there = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families
        if not family.name.endswith("_created")
    }
    assert set(re.findall(r"`(pteron_\w+)", PAGE)) == there
