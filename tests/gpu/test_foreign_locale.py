"""Commands under a locale that is not UTF-8, as on Windows in the West."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Reading or writing text without naming its encoding is an error in Pteron's own modules.
STRICT = """
import warnings
warnings.filterwarnings("error", category=EncodingWarning, module=r"pteron(\\.|$)")
from pteron.__main__ import main
raise SystemExit(main())
"""


@pytest.mark.long(every=5)
@pytest.mark.parametrize(
    ("command", "encoding"),
    [("inspect", "cp1252"), ("info", "cp1252"), ("run", "cp1252"), ("demo", "cp1252"), ("run", "latin-1")],
)
def test_a_command_in_a_foreign_locale(command: str, encoding: str, programs: Path) -> None:
    program = str(programs / "mlp_dynamic.pte")
    arguments = {
        "info": ["info"],
        "inspect": ["inspect", program, "--graph"],
        "run": ["run", program, "--repeat", "1"],
        "demo": ["demo", "--max-new-tokens", "4"],
    }[command]
    foreign = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", STRICT, *arguments],
        capture_output=True,
        env={**os.environ, **foreign},
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    sign = {"info": "pteron ", "inspect": "f32[<=17, 7]", "run": "f32[<=17, 7]", "demo": "Once upon a time"}
    assert sign[command] in text
    assert "\\u" not in text
