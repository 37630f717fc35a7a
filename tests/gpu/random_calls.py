"""Random use of programs, checked against the same calls of a program that nothing else disturbs.

Programs are opened, called at any live shapes, given what other calls left on the GPU, interrupted, reset,
reloaded and closed in any order. Every result must be the one that the calls since the last reset give, bit
for bit.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule
from interruption import SignalAfter

import pteron
from pteron import DeviceError, GpuTensor, Program, PteronError
from pteron.runtime.sequence import Sequence

Inputs: TypeAlias = tuple[Any, ...]
PROGRAMS = Path(__file__).parents[1] / "fixtures" / "programs"
# With states on the GPU and on the host, live shapes and integers, several delegates, branches, none.
NAMES = (
    "attention_cache",
    "cond",
    "host_only",
    "mlp_dynamic",
    "mutable_buffer",
    "mutable_buffer_host",
    "repeated_outputs",
    "select_position",
    "symint_output",
    "two_delegates",
    "update_cache",
)
VARIANTS = 6


def drawn(specs: tuple[Any, ...], variant: int) -> Inputs:
    """Inputs of a method: the same for the same variant. Dims of one maximum are one dim of the model."""
    random = np.random.default_rng(variant)
    sizes = {
        most: int(random.integers(1, most + 1)) for spec in specs for most in spec.shape_max or () if most
    }
    inputs: list[Any] = []
    for spec in specs:
        if spec.kind != "tensor":
            inputs.append(variant % 3)
            continue
        shape = [
            sizes[most] if is_live else most
            for most, is_live in zip(spec.shape_max, spec.dynamic, strict=True)
        ]
        numbers = random.standard_normal(shape) if spec.dtype.is_float else np.full(shape, variant % 2)
        inputs.append(numbers.astype(spec.dtype.numpy))
    return tuple(inputs)


class Undisturbed:
    """What calls give, by the program and all inputs since the last reset."""

    def __init__(self) -> None:
        self._programs: dict[str, Program] = {}
        self._known: dict[object, list[Any] | str] = {}

    def program(self, name: str) -> Program:
        if name not in self._programs:
            self._programs[name] = pteron.load(PROGRAMS / f"{name}.pte")
        return self._programs[name]

    def inputs(self, name: str, variant: int) -> Inputs:
        return drawn(self.program(name)["forward"].inputs, variant)

    def outcome(self, name: str, history: list[Inputs]) -> list[Any] | str:
        """The outputs of the last of these calls, or the name of its error."""
        key = name, tuple(tuple(_key(value) for value in inputs) for inputs in history)
        if key not in self._known:
            method = self.program(name)["forward"]
            method.reset()
            found: list[Any] | str = []
            for inputs in history:
                try:
                    found = list(method(*inputs))
                except PteronError as error:
                    found = type(error).__name__
            self._known[key] = found
        return self._known[key]


def _key(value: Any) -> object:
    return (value.shape, str(value.dtype), value.tobytes()) if isinstance(value, np.ndarray) else value


UNDISTURBED = Undisturbed()


class User:
    """A sequence of calls as it should be: what it was given since the last reset."""

    def __init__(self, name: str, program: Program, calls: Program | Sequence) -> None:
        self.name = name
        self.program = program
        self.calls = calls
        self.history: list[Inputs] = []
        self.is_closed = False

    def restart(self) -> None:
        self.history = []


class Calls(RuleBasedStateMachine):
    """Every rule may come after every other."""

    users = Bundle("users")
    kept = Bundle("kept")

    def __init__(self) -> None:
        super().__init__()
        self._users: list[User] = []

    @rule(target=users, name=st.sampled_from(NAMES), from_bytes=st.booleans())
    def load(self, name: str, from_bytes: bool) -> User:
        path = PROGRAMS / f"{name}.pte"
        program = pteron.load(path.read_bytes() if from_bytes else path)
        return self._user(name, program, program)

    @rule(target=users, user=users)
    def sequence(self, user: User) -> User:
        return self._user(user.name, user.program, user.program.sequence())

    def _user(self, name: str, program: Program, calls: Program | Sequence) -> User:
        user = User(name, program, calls)
        user.is_closed = any(other.is_closed for other in self._of(program) if other.calls is program)
        self._users.append(user)
        return user

    def _of(self, program: Program) -> Iterator[User]:
        return (user for user in self._users if user.program is program)

    @rule(target=kept, user=users, variant=st.integers(0, VARIANTS - 1), on_gpu=st.booleans())
    def call(self, user: User, variant: int, on_gpu: bool) -> Any:
        return multiple(*self._call(user, UNDISTURBED.inputs(user.name, variant), on_gpu))

    @rule(user=users, variant=st.integers(0, VARIANTS - 1), kept=kept)
    def feed(self, user: User, variant: int, kept: tuple[GpuTensor, Any]) -> None:
        """Give a call what another left on the GPU, where it takes such a tensor."""
        tensor, array = kept
        inputs = list(UNDISTURBED.inputs(user.name, variant))
        for position, value in enumerate(inputs):
            if isinstance(value, np.ndarray) and value.shape == array.shape and value.dtype == array.dtype:
                inputs[position] = array
                given = [tensor if each is array else each for each in inputs]
                self._call(user, tuple(inputs), on_gpu=False, given=tuple(given))
                return

    def _call(
        self, user: User, inputs: Inputs, on_gpu: bool, given: Inputs | None = None
    ) -> list[tuple[GpuTensor, Any]]:
        expected = UNDISTURBED.outcome(user.name, [*user.history, inputs])
        try:
            outputs = user.calls["forward"](*(given or inputs), on_gpu=on_gpu)
        except DeviceError:
            assert user.is_closed
            return []
        except PteronError as error:
            _assert_same(type(error).__name__, expected)
            return []
        assert not user.is_closed
        assert not isinstance(expected, str), (expected, inputs)
        user.history.append(inputs)
        for output, array in zip(outputs, expected, strict=True):
            _assert_same(output, array)
        return [
            (out, array) for out, array in zip(outputs, expected, strict=True) if isinstance(out, GpuTensor)
        ]

    @rule(kept=kept)
    def read(self, kept: tuple[GpuTensor, Any]) -> None:
        _assert_same(*kept)

    @rule(
        user=users,
        variant=st.integers(0, VARIANTS - 1),
        microseconds=st.integers(1, 3000),
    )
    def interrupted(self, user: User, variant: int, microseconds: int) -> None:
        """A call that Ctrl-C may end; the next one is right after a reset."""
        inputs = UNDISTURBED.inputs(user.name, variant)
        try:
            with SignalAfter(1e-6 * microseconds):
                user.calls["forward"](*inputs)
        except (KeyboardInterrupt, PteronError):
            if not user.is_closed:
                user.calls["forward"].reset()
                user.restart()
        else:
            user.history.append(inputs)

    @rule(user=users)
    def reset(self, user: User) -> None:
        try:
            user.calls["forward"].reset()
        except DeviceError:
            assert user.is_closed
        else:
            user.restart()

    @rule(user=users)
    def close(self, user: User) -> None:
        user.calls.close()
        for other in self._of(user.program):
            other.is_closed |= other is user or user.calls is user.program

    @rule(user=users)
    def reload(self, user: User) -> None:
        try:
            user.program.reload()
        except DeviceError:
            assert all(other.is_closed for other in self._of(user.program) if other.calls is user.program)
            return
        for other in self._of(user.program):
            if other.calls is user.program:
                other.restart()
            else:
                other.is_closed = True

    @rule()
    def collect(self) -> None:
        gc.collect()

    def teardown(self) -> None:
        for user in self._users:
            user.program.close()


def _assert_same(found: Any, expected: Any) -> None:
    if isinstance(found, GpuTensor):
        found = found.numpy()
    if isinstance(found, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()
    else:
        assert found == expected
