"""pteron completion: a script for a shell, which calls `pteron completion --words` at each Tab."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from pteron.cli.arguments import add_examples

_MODELS = ("model", "model_option", "more", "speculate")  # arguments that name a model
# Each script requests the candidates for the last word; where there are none, it completes file names.
_SCRIPTS = {
    "bash": """\
_pteron() {
    local IFS=$'\\n'
    COMPREPLY=($(pteron completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _pteron pteron
""",
    "zsh": """\
#compdef pteron
_pteron() {
    local -a found
    found=("${(@f)$(pteron completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _pteron pteron
""",
    "fish": """\
function __pteron_words
    set -l typed (commandline -opc) (commandline -ct)
    pteron completion --words $typed[2..-1] 2>/dev/null
    or __fish_complete_path (commandline -ct)
end
complete -c pteron -f -a '(__pteron_words)'
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", nargs="?", choices=[*_SCRIPTS], help=f"one of {', '.join(_SCRIPTS)}"
    )
    parser.add_argument("--words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    add_examples(
        parser,
        'eval "$(pteron completion bash)"      # in ~/.bashrc',
        'eval "$(pteron completion zsh)"       # in ~/.zshrc, after compinit',
        "pteron completion fish | source       # in ~/.config/fish/config.fish",
    )
    parser.set_defaults(fail=parser.error)


def command(arguments: argparse.Namespace) -> int:
    if arguments.words is not None:
        words = words_for(arguments.words)
        print("\n".join(words))
        return 0 if words else 1
    if arguments.shell is not None:
        print(_SCRIPTS[arguments.shell], end="")
    else:
        arguments.fail(f"name a shell: {', '.join(_SCRIPTS)}")
    return 0


def words_for(typed: Sequence[str]) -> list[str]:
    """The candidates for the last word typed; none where a file name may follow."""
    *before, last = typed or [""]
    option, sign, value = last.partition("=")
    if sign and option:  # --option=value
        return [f"{option}={word}" for word in _words([*before, option], value)]
    words = [word for word in before if word != "="]  # bash passes "=" as a word
    return _words(words, value if sign else last)


def _words(before: Sequence[str], begun: str) -> list[str]:
    """The candidates that follow the words `before` and start with `begun`."""
    from pteron.cli import COMMANDS, build_parser

    parser = build_parser([name for name in COMMANDS if name in before])
    for word in before:
        parser = _commands(parser).get(word, parser)
    option = parser._option_string_actions.get(before[-1]) if before else None
    if option is not None and option.nargs != 0:
        found = _values(option)
    elif begun.startswith("-"):
        found = [flag for flag in parser._option_string_actions if flag.startswith("--")]
    else:
        # Without a letter of a model's name the shell completes file names.
        found = [word for action in parser._get_positional_actions() for word in _values(action, bool(begun))]
    return list(dict.fromkeys(word for word in found if word.startswith(begun)))


def _values(action: argparse.Action, with_models: bool = True) -> list[str]:
    """The values that an argument may have, as far as they are known."""
    if action.dest in _MODELS and with_models:
        lookup = ["lookup"] if action.dest == "speculate" else []
        return lookup + _models()
    if action.dest == "device":
        from pteron.gpu import adapters

        return adapter_words([f"{each.name} {each.kind} {each.backend}" for each in adapters()])
    return [str(choice) for choice in action.choices or ()]


def _models() -> list[str]:
    """The models on this machine that have a name; files are completed by the shell."""
    from pteron.llm.names.local_models import local_models
    from pteron.llm.names.models import names

    return [*names(), *(model.name for model in local_models() if model.hub)]


def adapter_words(described: Sequence[str]) -> list[str]:
    """A word for each adapter that no other adapter has in its description; without one, its number."""
    words = []
    for index, text in enumerate(described):
        others = [other.lower() for at, other in enumerate(described) if at != index]
        own = [word for word in re.findall(r"[\w-]{3,}", text) if not any(word.lower() in o for o in others)]
        words.append(own[0] if own else str(index))
    return words


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a parser's subcommands."""
    for action in parser._get_positional_actions():
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
