"""scripts/wheels accepts wheels as scripts/build-native makes them, and says what is wrong with others."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pteron

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "wheels"
INFORMATION = f"pteron-{pteron.__version__}.dist-info"
ELF = b"\x7fELF" + bytes(14)
MACH_O = b"\xcf\xfa\xed\xfe"
PE = b"MZ" + bytes(0x3A) + struct.pack("<I", 0x40) + b"PE\0\0"
# By tag: the name of the library's file, and its header.
PLATFORMS = {
    "manylinux_2_17_x86_64": (".so", ELF + struct.pack("<H", 62)),
    "manylinux_2_17_aarch64": (".so", ELF + struct.pack("<H", 183)),
    "macosx_11_0_x86_64": (".dylib", MACH_O + struct.pack("<I", 0x01000007)),
    "macosx_11_0_arm64": (".dylib", MACH_O + struct.pack("<I", 0x0100000C)),
    "win_amd64": (".dll", PE + struct.pack("<H", 0x8664)),
    "win_arm64": (".dll", PE + struct.pack("<H", 0xAA64)),
    "any": ("", b""),
}

if not SCRIPT.exists():
    pytest.skip("scripts/ is only in the repository", allow_module_level=True)


def wheels(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


LINK = "[install](https://github.com/pteron/pteron/blob/v0.1.0/docs/install.md)"


def write(
    folder: Path, tag: str, suffix: str, header: bytes, *, recorded: bytes = b"", readme: str = LINK
) -> Path:
    """A wheel with what scripts/wheels looks for; RECORD has the digest of `recorded` for py.typed."""
    files = {
        "pteron/py.typed": b"",
        "pteron/models/stories15m/model.pte": b"model",
        f"{INFORMATION}/licenses/LICENSE": b"free",
        f"{INFORMATION}/METADATA": readme.encode(),
        f"{INFORMATION}/WHEEL": f"Wheel-Version: 1.0\nTag: py3-none-{tag}\n".encode(),
    }
    if suffix:
        files[f"pteron/gpu/libpteron_encode{suffix}"] = header + b"pteron_record"
    digests = {name: digest(recorded if name == "pteron/py.typed" else data) for name, data in files.items()}
    record = "".join(f"{name},sha256={each},1\n" for name, each in digests.items())
    path = folder / f"pteron-{pteron.__version__}-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{INFORMATION}/RECORD", f"{record}{INFORMATION}/RECORD,,\n")
    return path


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for tag, (suffix, header) in PLATFORMS.items():
        write(tmp_path, tag, suffix, header)
    return tmp_path


def test_wheels_of_a_release(folder: Path) -> None:
    done = wheels(str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("content as expected") == len(PLATFORMS)


def test_missing_and_foreign_wheels(folder: Path) -> None:
    (folder / f"pteron-{pteron.__version__}-py3-none-win_arm64.whl").rename(folder / "pteron-0-any.whl")
    done = wheels(str(folder))
    assert re.search(r"lacks \['pteron-.*-win_arm64.whl'\] and has \['pteron-0-any.whl'\]", done.stderr)


@pytest.mark.parametrize(
    ("tag", "like", "said"),
    [
        ("win_arm64", "win_amd64", "libpteron_encode.dll is for machine 0x8664"),
        ("macosx_11_0_arm64", "macosx_11_0_x86_64", "libpteron_encode.dylib is for machine 0x1000007"),
        ("any", "win_amd64", "libpteron_encode.dll"),
        ("win_amd64", "any", "has []"),
    ],
)
def test_a_wrong_library(folder: Path, tag: str, like: str, said: str) -> None:
    write(folder, tag, *PLATFORMS[like])
    done = wheels(str(folder))
    assert done.returncode
    assert said in done.stderr


def test_a_changed_file(folder: Path) -> None:
    write(folder, "any", "", b"", recorded=b"other")
    assert "pteron/py.typed is not what RECORD states" in wheels(str(folder)).stderr


def test_links_that_lead_nowhere_on_pypi(folder: Path) -> None:
    write(folder, "any", "", b"", readme=f'{LINK} program["forward"](x) [doctor](docs/doctor.md#report)')
    assert "cannot follow ['[doctor](docs/doctor.md#report)']" in wheels(str(folder)).stderr


def test_versions_and_notes() -> None:
    """All files state the package's version; another tag is refused; the notes are those of this version."""
    assert wheels("--tag", f"v{pteron.__version__}").returncode == 0
    refused = wheels("--tag", "v99.0").stderr
    assert all(file in refused for file in ("pyproject.toml", "CITATION.cff", "web/package.json"))
    notes = wheels("--notes").stdout
    assert "### What you can do" in notes
    assert "## [" not in notes
    assert "\n[0.1.0]:" not in notes
