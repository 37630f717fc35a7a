"""A fuzzer for everything that reads untrusted files: README.md, `scripts/fuzz --help`.

A target (targets/) takes the bytes of one file. It ends with a result or with a PteronError; anything else is
a finding: another exception, a dead process, an input beyond the target's time or memory limit, a wrong
result. Inputs are valid files (seeds), mutated at the fields of their format (mutation/).
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SOURCES = ROOT / "src" / "pteron"
FIXTURES = TESTS / "fixtures"

sys.path[:0] = [str(TESTS), str(TESTS / "cpu")]  # the writers of flatbuffers and programs
