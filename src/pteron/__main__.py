"""python -m pteron, and the command `pteron`."""

import gc
import os
import sys
import time

# Python looks for modules in the current folder first, and there may lie a json.py that somebody downloaded.
if sys.path[:1] in ([""], [os.getcwd()]):
    del sys.path[0]

INTERRUPTED = 130  # as shells report a program that Ctrl-C ended
_SHOW_CURSOR = b"\x1b[?25h"  # which a bar may have hidden
_GARBAGE = (
    20_000  # objects more than before, where it is looked for: imports leave none, but would look often
)
_SOON = 1.0  # seconds
_interrupts: list[float] = []  # when Ctrl-C was pressed


def main() -> int:
    """The process of a command; its exit code. Ctrl-C ends it without a word, also while it imports."""
    sys.unraisablehook = _unraisable
    gc.set_threshold(_GARBAGE)
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not in the background
            signal.signal(signal.SIGINT, _interrupt)
        from pteron.cli import run_process

        run_process()
    except BaseException as error:
        if _is_interrupt(error):
            return INTERRUPTED
        raise


def _interrupt(number: int, frame: object) -> None:
    _interrupts.append(time.monotonic())
    raise KeyboardInterrupt


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C was the cause of an error. Python wraps what is raised while a class is made, and
    modules in C, while they are imported, make errors of their own of it: these come soon after."""
    if error is None or isinstance(error, (KeyboardInterrupt, SystemExit)):
        return isinstance(error, KeyboardInterrupt)
    is_soon = bool(_interrupts) and time.monotonic() - _interrupts[-1] < _SOON
    return is_soon or _is_interrupt(error.__cause__)


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
