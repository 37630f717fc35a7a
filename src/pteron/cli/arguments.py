"""Options that several commands share, and the types of arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pteron.tools.inputs import LiveSize
    from pteron.tools.workload import Selection

SEED_MAX = (1 << 31) - 1
Type = Callable[[str], Any]
# What options of vLLM, llama.cpp and uvicorn are called here.
_CALLED_HERE = {
    "--max-model-len": "--context",
    "--ctx-size": "--context",
    "--num-ctx": "--context",
    "--served-model-name": "--name",
    "--max-num-seqs": "--sequences",
    "--parallel": "--sequences",
    "--lora-modules": "--lora",
    "--ssl-certfile": "--certificate",
    "--ssl-keyfile": "--private-key",
    "--allowed-origins": "--cors",
}


class Parser(argparse.ArgumentParser):
    """A parser that says which option an unknown one may mean."""

    def parse_known_args(  # type: ignore[override]  # argparse's overloads
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """The arguments; unknown ones are an error of the command that they follow."""
        found, unknown = super().parse_known_args(args, namespace)
        # argparse of Python 3.11 leaves TEXT over if options stand between MODEL and TEXT.
        if getattr(found, "text", "") is None and len(unknown) == 1 and not unknown[0].startswith("-"):
            found.text = unknown.pop()
        if unknown:
            meant = ", ".join(filter(None, map(self._meant, unknown)))
            hint = f"; did you mean {meant}?" if meant else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, []

    def _meant(self, word: str) -> str:
        """The option that an unknown one may mean, or an empty string."""
        flag = word.partition("=")[0]
        options = [
            name
            for name, action in self._option_string_actions.items()
            if name.startswith("--") and action.help != argparse.SUPPRESS
        ]
        if (here := _CALLED_HERE.get(flag)) in options:
            return here or ""
        near = get_close_matches(flag.lstrip("-"), [name[2:] for name in options], 1)
        return f"--{near[0]}" if near else ""


class Options:
    """Adds options to a parser or to one of its groups."""

    def __init__(self, parser: argparse._ActionsContainer) -> None:
        self.parser = parser

    def group(self, title: str) -> Options:
        return Options(self.parser.add_argument_group(title))

    def add(
        self,
        flag: str,
        metavar: str,
        help: str,
        type: Type = str,
        default: object = None,
        also: Sequence[str] = (),
    ) -> None:
        """An option with a value; the help of one with a default ends with it. `also` are its other names."""
        help = help if default is None else f"{help} (default: %(default)s)"
        self.parser.add_argument(flag, *also, metavar=metavar, type=type, default=default, help=help)

    def flag(self, flag: str, help: str) -> None:
        self.parser.add_argument(flag, action="store_true", help=help)

    def choice(self, flag: str, choices: Sequence[str], default: str, help: str) -> None:
        help = f"{help} (default: %(default)s)"
        self.parser.add_argument(flag, choices=choices, default=default, help=help)

    def repeatable(self, flag: str, metavar: str, help: str, type: Type = str, default: str = "") -> None:
        """An option that collects a list; `default` says what an empty list means."""
        help = f"{help} (repeatable; default: {default})" if default else f"{help} (repeatable)"
        self.parser.add_argument(flag, metavar=metavar, type=type, action="append", default=[], help=help)

    def device(self) -> None:
        gpu = "GPU, by part of its name or by its number in `pteron info`"
        self.add("--device", "NAME", f"{gpu} (default: $PTERON_ADAPTER, or the most capable one)")

    def precision(self, *, several: bool = False, of_llm: bool = False) -> None:
        """How exactly products are computed; with `several`, --products collects a list. The defaults of an
        LLM depend on its weights."""
        digits = "int8 digits of activations in products of few rows with 4-bit weights; 3: as exact as f32, "
        digits += "2: faster, 14 bits instead of 22; GPUs only (default: $PTERON_DIGITS, or 3"
        digits += ", or 2 with f16 products by default)" if of_llm else ")"
        self.parser.add_argument("--digits", choices=(2, 3), type=int, help=digits)
        products = "how matrix cores multiply f32 numbers; f16: faster, rounds them to 11 bits; no effect "
        products += "where no matrix cores are used (default: $PTERON_PRODUCTS, or f32"
        products += ", or f16 for weights of 4 or 8 bits)" if of_llm else ")"
        listed: dict[str, Any] = {"action": "append", "default": []} if several else {}
        products += "; several are compared (repeatable)" if several else ""
        self.parser.add_argument("--products", choices=("f32", "f16"), help=products, **listed)

    def json(self) -> None:
        self.flag("--json", "print the report as JSON")

    def model(self, also: str = "") -> None:
        """MODEL, or --model, for `given_model`; `also` names what else a command takes."""
        kinds = (
            "a program (.pte) or its folder, a checkpoint's folder, a GGUF file, a built-in model (smollm2, "
        )
        kinds += f"stories15m), or owner/name of a hub, also as owner/name:Q4_K_M{also}"
        self.parser.add_argument("model", metavar="MODEL", nargs="?", help=kinds)
        self.parser.add_argument("--model", metavar="MODEL", dest="model_option", help="the same as MODEL")

    def data(self) -> None:
        self.repeatable("--data", "FILE.ptd", "weight file of the program, by path or as owner/name:file.ptd")

    def call(self) -> None:
        """The method to call and its inputs; `dims` adds the sizes of random inputs."""
        self.add("--method", "NAME", "method to call (default: forward, or the only one)")
        self.repeatable(
            "--input",
            "VALUE",
            "an input of the method, in order: a .npy, .npz or .json file, or a value such as 3, 2.5 or "
            "[1, 2]",
            default="random values",
        )
        self.add("--seed", "N", "seed of the random inputs", seed, 0)

    def dims(self, purpose: str, default: str = "the maximum") -> None:
        help = f"{purpose}: 0.1=7 sets dim 1 of input 0, 7 sets every dynamic dim"
        self.repeatable("--dim", "SIZE", help, live_size, default)


def add_examples(parser: argparse.ArgumentParser, *commands: str) -> None:
    """Print commands at the end of a parser's help."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "examples:\n" + "\n".join(f"  {command}" for command in commands)


def live_size(text: str) -> LiveSize:
    """`7`, or `0.1=7`."""
    from pteron.tools.inputs import LiveSize  # here: help needs no NumPy

    match = re.fullmatch(r"(?:(\d+)\.(\d+)=)?(\d+)", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected SIZE or INPUT.DIM=SIZE, as in 0.1=7, not {text!r}")
    input, dim, size = match.groups()
    return LiveSize(int(size)) if input is None else LiveSize(int(size), int(input), int(dim))


def selection(arguments: argparse.Namespace) -> Selection:
    """What `Options.call` and `dims` were given."""
    from pteron.tools.inputs import read_inputs
    from pteron.tools.workload import Selection

    return Selection(arguments.method, read_inputs(arguments.input), arguments.dim, arguments.seed)


def number(least: float, most: float = float("inf"), kind: type[float] = float) -> Type:
    """The type of an argument that is a number, or an integer, within bounds."""

    def parse(text: str) -> float:
        try:
            found = kind(text)
        except ValueError:
            found = float("nan")
        if not least <= found <= most:
            noun = "a number" if kind is float else "an integer"
            bounds = f"from {least} to {most}" if most < float("inf") else f"of at least {least}"
            raise argparse.ArgumentTypeError(f"expected {noun} {bounds}, not {text!r}")
        return found

    return parse


seed, count, positive = number(0, SEED_MAX, int), number(0, kind=int), number(1, kind=int)
