"""python -m pteron, and the command `pteron`."""

import os
import sys

# Python looks for modules in the current folder first, and there may lie a json.py that somebody downloaded.
if sys.path[:1] in ([""], [os.getcwd()]):
    del sys.path[0]

INTERRUPTED = 130  # as shells report a program that Ctrl-C ended
_SHOW_CURSOR = b"\x1b[?25h"  # which a bar may have hidden
_interrupts: list[int] = []  # the signals that came


def main() -> int:
    """The process of a command; its exit code. Ctrl-C ends it without a word, also while it imports."""
    sys.unraisablehook = _unraisable
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not in the background
            signal.signal(signal.SIGINT, _interrupt)
        from pteron.cli.process import run

        run()
    except BaseException as error:
        if _is_interrupt(error):
            return INTERRUPTED
        raise


def _interrupt(number: int, frame: object) -> None:
    _interrupts.append(number)
    raise KeyboardInterrupt


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C was the cause of an error. Python wraps what is raised while a class is made, and NumPy,
    while it is imported, says of it no more than that something could not be."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return error is not None
    return (isinstance(error, ImportError) and bool(_interrupts)) or _is_interrupt(error.__cause__)


def _unraisable(told: "sys.UnraisableHookArgs") -> None:
    """Where Python can only report an error, as in callbacks of libraries, Ctrl-C would be lost."""
    if not _is_interrupt(told.exc_value):
        sys.__unraisablehook__(told)
        return
    if os.isatty(2):
        os.write(2, _SHOW_CURSOR)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
