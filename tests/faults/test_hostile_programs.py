"""Files of a few hundred bytes that demand too much memory or forbidden actions of the host: one error each.

They run in a process with a small memory limit, so a file that gets its memory ends only that process.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "null"))
from flatbuffer_writer import Fields, Numbers, Scalar, int8, int32, int32s, int64, int64s
from program_writer import call_of, chain_of, plan_of, program_bytes, tensor_of, value_of

SECONDS_PER_FILE = 60
STATIC, UNBOUND = 0, 2


def integer(value: int) -> Fields:
    return value_of(2, int64(value))


def number(value: float) -> Fields:
    return value_of(4, Scalar("d", value))


def boolean(value: bool) -> Fields:
    return value_of(3, int8(value))


def text(value: str) -> Fields:
    return value_of(6, value)


def integers(*ids: int) -> Fields:
    return value_of(7, int64s(*ids))


def tensor(*sizes: int, dynamism: int = STATIC) -> Fields:
    order = bytes(range(len(sizes)))
    return tensor_of(slot2=int32s(*sizes), slot3=order, slot6=Fields({0: int32(1)}), slot8=int8(dynamism))


NOTHING = value_of(1)


def kernel(operator: int, *arguments: int) -> Fields:
    return call_of(1, int32(operator), int32s(*arguments))


def move(source: int, target: int) -> Fields:
    return call_of(3, int32(source), int32(target))


def jump(condition: int, destination: int) -> Fields:
    return call_of(4, int32(condition), int32(destination))


def program(
    values: list[Fields],
    operators: Sequence[str],
    calls: Sequence[Fields],
    inputs: Sequence[int] = (),
    outputs: Sequence[int] = (0,),
) -> bytes:
    named = [operator.partition(".") for operator in operators]
    return program_bytes(
        [
            plan_of(
                values,
                slot3=int32s(*inputs),
                slot4=int32s(*outputs),
                slot5=chain_of(*calls),
                slot6=[Fields({0: name, 1: overload}) for name, _, overload in named],
                slot8=Numbers("q", (0, 1 << 40)),
            )
        ]
    )


ADD, MUL, MOD = (f"executorch_prim::{name}.Scalar" for name in ("add", "mul", "mod"))
X = tensor(4)
INDICES = tensor_of(slot0=int8(4), slot2=int32s(2), slot3=bytes(1), slot6=Fields({0: int32(1)}))
TEXT = "HostError .*takes numbers, found str"
# A file, and the words of what it ends in.
FILES: dict[str, tuple[bytes, str]] = {
    "squares": (program([integer(3)], [MUL], [kernel(0, 0, 0, 0)] * 60), "HostError .* 64 bits"),
    "doubled_text": (program([text("x" * 99)], [ADD], [kernel(0, 0, 0, 0)] * 40), TEXT),
    "many_texts": (program([text("x"), integer(1 << 32)], [MUL], [kernel(0, 0, 1, 0)]), TEXT),
    "wide_text": (program([text("%09999999999d"), integer(5)], [MOD], [kernel(0, 0, 1, 0)]), TEXT),
    "list_of_itself": (program([integers(0)], [], []), "FormatError .*which is a list"),
    "list_of_lists": (
        program([integers(*[id + 1] * 9) for id in range(40)] + [integer(1)], [], []),
        "FormatError .*which is a list",
    ),
    "endless_loop": (
        program([boolean(False), boolean(False)], [], [move(1, 0), jump(0, 0)]),
        "HostError .*PTERON_HOST_STEPS",
    ),
    "endless_rows": (
        program(
            [tensor(4096), tensor(0, 4096, dynamism=UNBOUND), integer(0), integer(1), *[boolean(False)] * 2],
            ["executorch_prim::et_copy_index.tensor", ADD],
            [move(5, 4), kernel(0, 1, 0, 2, 1), kernel(1, 2, 3, 2), jump(4, 0)],
            [0],
            [1],
        ),
        "HostError .*PTERON_HOST_BYTES",
    ),
    "huge_fill": (
        program(
            [integers(1), integer(2_000_000_000), number(1), tensor(4, dynamism=UNBOUND)],
            ["aten::full.out"],
            [kernel(0, 0, 2, 3, 3)],
            outputs=[3],
        ),
        "HostError .*8,000,000,000 bytes.*PTERON_HOST_BYTES",
    ),
    "fill_beyond_its_output": (
        program(
            [integers(1), integer(2_000_000_000), number(1), X],
            ["aten::full.out"],
            [kernel(0, 0, 2, 3, 3)],
            outputs=[3],
        ),
        r"GraphError .*writes a tensor f32\[2000000000\] to %3, which is a tensor f32\[4\]",
    ),
    "huge_repeat": (
        program(
            [X, integers(2), integer(1 << 40), tensor(4, dynamism=UNBOUND)],
            ["aten::repeat.out"],
            [kernel(0, 0, 1, 3, 3)],
            [0],
            [3],
        ),
        "HostError .*17,592,186,044,416 bytes",
    ),
    "doubled_tensor": (
        program(
            [X, tensor(4, dynamism=UNBOUND), value_of(10, int32s(1, 1)), integer(0), integers(5), integer(4)],
            ["executorch_prim::et_view.default", "aten::cat.out"],
            [kernel(0, 0, 4, 1, 1), *[kernel(1, 2, 3, 1, 1)] * 60],
            [0],
            [1],
        ),
        "HostError .*PTERON_HOST_BYTES",
    ),
    "huge_state": (
        program([tensor(1 << 30, 16), integer(1)], ["aten::add_.Scalar"], [kernel(0, 0, 1, 1, 0)]),
        "HostError .*state %0: 68,719,476,736 bytes",
    ),
    "sum_of_no_type": (
        program([X, integer(0), integer(-1), X], ["aten::cumsum.out"], [kernel(0, 0, 1, 2, 3, 3)], [0], [3]),
        r"HostError .*argument dtype takes Optional\[ScalarType\], found -1",
    ),
    "rows_that_are_not_there": (
        program(
            [
                tensor(4, 4),
                INDICES,
                integer(-1),
                boolean(False),
                tensor(2, 4),
                integer(1 << 40),
                integers(7),
                integer(2),
            ],
            ["aten::full.out", "aten::embedding.out"],
            [kernel(0, 6, 5, 1, 1), kernel(1, 0, 1, 2, 3, 3, 4, 4)],
            [0],
            [4],
        ),
        "HostError .*indices from 1099511627776 to 1099511627776 for a size of 4",
    ),
    "an_operator_of_training": (
        program([X], ["aten::_embedding_bag_dense_backward.out"], []),
        "UnsupportedError .*no operators that programs may call.*_embedding_bag_dense_backward",
    ),
    "a_file_of_its_choice": (
        program([X], ["aten::from_file.out"], []),
        "UnsupportedError .*no operators that programs may call.*from_file",
    ),
    "writes_to_its_input": (
        program([X, number(7)], ["aten::fill_.Scalar"], [kernel(0, 0, 1, 0)], [0]),
        "ran",
    ),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """How the use of each file ended, by name."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("hostile")
    paths = []
    for name, (data, _) in FILES.items():
        paths.append(folder / f"{name}.pte")
        paths[-1].write_bytes(data)
    worker = Path(__file__).with_name("use_program.py")
    done = subprocess.run(
        [sys.executable, worker, *paths],
        capture_output=True,
        text=True,
        timeout=SECONDS_PER_FILE * len(FILES),
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"the last to end was {lines[-1:]}\n{done.stderr[-2000:]}"
    return dict(line.split(" ", 1) for line in lines)


@pytest.mark.parametrize("name", FILES)
def test_one_error_each(outcomes: dict[str, str], name: str) -> None:
    assert re.match(FILES[name][1], outcomes[name]), outcomes[name]
