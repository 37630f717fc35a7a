"""Fuzzing that stays: inputs nobody made on purpose, for every part that reads what strangers wrote.

    scripts/fuzz MINUTES [--targets NAME,...] [--seed N]
    scripts/fuzz --replay FILE
    scripts/fuzz --list

A target (targets/) takes the bytes of one file. What it does with them may end in a result or in one of the
project's own errors; anything else is a finding: another exception, a process that dies, an input that takes
longer or more memory than its target allows, a result that differs where it must not. Inputs are seeds and
what was kept of earlier runs, changed where their format has fields (mutation/), or made by a generator. What
reaches a new line of the watched sources is kept (.cache/fuzz), so a later run starts where an earlier one
ended.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SOURCES = ROOT / "src" / "pteron"
FIXTURES = TESTS / "fixtures"

sys.path[:0] = [str(TESTS), str(TESTS / "null")]  # the writers of flatbuffers and programs
