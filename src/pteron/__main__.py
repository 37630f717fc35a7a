"""python -m pteron, and the command `pteron`."""

import os
import sys

# Python looks for modules in the current folder first, and there may lie a json.py that somebody downloaded.
if sys.path[:1] in ([""], [os.getcwd()]):
    del sys.path[0]


def main() -> int:
    """The process of a command; its exit code. Ctrl-C ends it without a word, also while it imports."""
    try:
        from pteron.cli.process import run

        return run()
    except BaseException as error:
        if _is_interrupt(error):
            return 130
        raise


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C was the cause of an error: Python wraps what is raised while a class is made."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interrupt(error.__cause__))


if __name__ == "__main__":
    sys.exit(main())
