"""Two results of `pteron bench`: what is slower beyond noise, and files that are none."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pteron import InputError
from pteron.cli import main
from pteron.tools.bench import Bench, Case, Pace, judge
from pteron.tools.bench.report import CONTROL


def case(samples: np.ndarray, what: str = "forward", device: str = "a GPU") -> Case:
    return Case("model.pte", what, ("float32[1]",), device, "call", 1, 5, tuple(map(float, samples)))


def noisy(median: float, seed: int, count: int = 50) -> np.ndarray:
    """Times with a long tail, as machines have them."""
    return median * (1 + np.random.default_rng(seed).exponential(0.05, count))


def verdict(old: np.ndarray, new: np.ndarray, tolerance: float = 0.05) -> str:
    (comparison,) = judge(Bench((case(old),)), Bench((case(new),)), tolerance).comparisons
    return comparison.verdict


def test_what_is_slower() -> None:
    assert verdict(noisy(1.0, 0), noisy(1.2, 1)) == "slower"
    assert verdict(noisy(1.2, 0), noisy(1.0, 1)) == "faster"
    assert verdict(noisy(1.0, 0), noisy(1.2, 1), tolerance=0.5) == "same"
    assert verdict(noisy(1.0, 0, 5), noisy(2.0, 1, 5)) == "too few samples"
    few = replace(case(noisy(1.0, 0)), rounds=4)
    assert judge(Bench((few,)), Bench((case(noisy(2.0, 1)),))).comparisons[0].verdict == "too few samples"
    for tolerance in (-0.01, float("inf"), float("nan")):
        with pytest.raises(InputError, match="the tolerance must be a fraction such as"):
            judge(Bench((few,)), Bench((few,)), tolerance)


def test_equal_programs_have_equal_verdicts() -> None:
    """Not even without tolerance, but for one of a hundred by chance."""
    verdicts = [verdict(noisy(1.0, 2 * seed), noisy(1.0, 2 * seed + 1), 0.0) for seed in range(100)]
    assert verdicts.count("same") + verdicts.count("noise") >= 98


def test_a_burst_of_noise_is_no_regression() -> None:
    """Most samples of three rounds of five are slow."""
    old, new = noisy(1.0, 0), noisy(1.0, 1)
    new[:30] *= 3
    assert verdict(old, new) == "noise"
    (comparison,) = judge(Bench((case(old),)), Bench((case(new),))).comparisons
    assert comparison.lowest < 1.1
    assert comparison.highest > 2.9


@pytest.mark.parametrize("seed", range(20))
def test_a_fifth_is_found_beside_a_burst(seed: int) -> None:
    """A slowdown by 20 % is one, though the earlier measurement had a burst in a round's tail."""
    old, new = noisy(1.0, 2 * seed), noisy(1.2, 2 * seed + 1)
    old[:4] *= 3
    assert verdict(old, new) == "slower"
    assert verdict(new, old) == "faster"


def test_a_slower_machine_is_no_regression() -> None:
    """Where the control is slower too, a case has to be slower than that."""
    old = Bench((case(noisy(1.0, 0)), case(noisy(1.0, 1), CONTROL)))
    machine = Bench((case(noisy(1.5, 2)), case(noisy(1.5, 3), CONTROL)))
    judged = judge(old, machine)
    assert [each.verdict for each in judged.comparisons] == ["as slow as the machine", "slower"]
    assert not judged.is_worse
    both = Bench((case(noisy(2.5, 2)), case(noisy(1.5, 3), CONTROL)))
    assert judge(old, both).is_worse
    elsewhere = (case(noisy(1.0, 4), CONTROL, "another GPU"), case(noisy(3.0, 5), CONTROL, "another GPU"))
    before, after = (
        Bench((case(noisy(median, 0)), case(noisy(1.0, 1), CONTROL), other))
        for median, other in zip((1.0, 1.5), elsewhere, strict=True)
    )
    assert judge(before, after).is_worse, "the control of another device says nothing"


def test_what_a_case_measures_is_part_of_it() -> None:
    plain = case(noisy(1.0, 0))
    for changed in ({"unit": "token"}, {"amount": 2}, {"inputs": ()}, {"device": "x"}, {"program": "x"}):
        assert replace(plain, **changed).key != plain.key
    assert replace(plain, samples=(1.0,), rounds=1).key == plain.key


def test_every_round_must_be_slower() -> None:
    """Four rounds of five are, one is as fast as before."""
    old, new = noisy(1.0, 0), noisy(2.0, 1)
    new[:10] = old[:10]
    assert verdict(old, new) == "noise"
    assert verdict(new, old) == "noise"


def test_files_keep_all_samples(tmp_path: Path) -> None:
    saved = Bench((case(noisy(1.0, 0)), case(noisy(1.0, 1), "other")))
    saved.save(tmp_path / "saved.json")
    assert Bench.read(tmp_path / "saved.json") == saved


def test_percentiles() -> None:
    found = case(np.arange(1, 101) / 100)
    assert found.percentile(50) == pytest.approx(0.505)
    assert found.percentile(99) == pytest.approx(0.9901)
    assert replace(found, amount=2).rate == pytest.approx(2 / 0.505)


def test_the_command_compares_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its exit code is for CI."""
    for name, median in (("old", 1.0), ("slow", 1.3), ("same", 1.0)):
        Bench((case(noisy(median, len(name))),)).save(tmp_path / f"{name}.json")
    old = ["bench", "--against", str(tmp_path / "old.json")]
    assert main([*old, str(tmp_path / "same.json")]) == 0
    assert "none of 1 case slower beyond noise and 5%" in capsys.readouterr().out
    assert main([*old, str(tmp_path / "slow.json")]) == 1
    assert "slower" in capsys.readouterr().out
    assert main([*old, str(tmp_path / "slow.json"), "--tolerance", "0.5"]) == 0


VALID: dict[str, Any] = {
    "program": "m",
    "what": "w",
    "inputs": [],
    "device": "d",
    "unit": "call",
    "amount": 1,
    "rounds": 1,
}
VALID["samples"] = [1.0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "Expecting value"),
        ("[]", "list indices"),
        ('{"pteron_bench": 9, "cases": []}', "version is 9"),
        (json.dumps({"pteron_bench": 1, "cases": [{**VALID, "samples": []}]}), "no samples"),
        (
            json.dumps({"pteron_bench": 1, "cases": [{**VALID, "samples": [1.0, 0]}]}),
            "samples that are times",
        ),
        ('{"pteron_bench": 1, "cases": [{"what": "w", "samples": [Infinity]}]}', "samples that are times"),
        (json.dumps({"pteron_bench": 1, "cases": [{**VALID, "rounds": 3}]}), "1 samples in 3 rounds"),
        (json.dumps({"pteron_bench": 1, "cases": [{**VALID, "rounds": 0}]}), "1 samples in 0 rounds"),
        (json.dumps({"pteron_bench": 1, "cases": [{**VALID, "amount": 0}]}), "1 samples in 1 rounds"),
        (json.dumps({"pteron_bench": 1, "cases": [{"what": "w"}]}), "samples"),
    ],
)
def test_a_file_that_is_no_result(
    content: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    assert main(["bench", "model.pte", "--against", str(path)]) == 1
    error = capsys.readouterr().err
    assert "broken.json is not a result of `pteron bench`: " in error
    assert problem in error
    assert error.count("\n") == 1


def test_results_of_different_things() -> None:
    with pytest.raises(InputError, match="were measured on different adapters"):
        judge(Bench((case(noisy(1, 0)),)), Bench((case(noisy(1, 0), device="another GPU"),)))
    with pytest.raises(InputError, match="no case in common"):
        judge(Bench((case(noisy(1, 0)),)), Bench((case(noisy(1, 0), "other"),)))
    judged = judge(
        Bench((case(noisy(1, 0)), case(noisy(1, 0), "old"))),
        Bench((case(noisy(1, 0)), case(noisy(1, 0), "new"))),
    )
    assert judged.only_old == ("model.pte, old (float32[1]) on a GPU",)
    assert judged.only_new == ("model.pte, new (float32[1]) on a GPU",)


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["new.json"], "name the older one with --against"),
        (["nowhere.pte"], "there is no such file"),
        (["model.pte", "--context", "3"], "--context needs --decode"),
        (["model.pte", "--prompt-tokens", "7", "--context", "3"], "--context needs --decode"),
        (["model.pte", "--json", "no/folder/r.json"], "cannot be written: no such folder"),
        (["model.pte", "--against", "nowhere.json"], "nowhere.json: there is no such file"),
    ],
)
def test_arguments_that_make_no_sense(
    argv: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *argv]) == 1
    printed = capsys.readouterr()
    assert problem in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    with pytest.raises(InputError, match="needs at least one run"):
        Pace(runs=0)


def test_a_folder_that_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said before the measurement; root may write everywhere."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert main(["bench", "model.pte", "--json", str(tmp_path / "r.json")]) == 1
    assert "r.json cannot be written: permission denied" in capsys.readouterr().err
