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
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
