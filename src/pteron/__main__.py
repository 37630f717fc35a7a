"""python -m pteron, and the command `pteron`."""

import gc
import os
import sys
import time

# Python looks for modules in the current folder first, which may contain an untrusted json.py.
if sys.path[:1] in ([""], [os.getcwd()]):
    del sys.path[0]

INTERRUPTED = 130  # exit code after Ctrl-C, as in shells
_SHOW_CURSOR = b"\x1b[?25h"  # a progress bar may have hidden it
_GC_THRESHOLD = 20_000  # new objects before GC runs: imports create many and leave no garbage
_SOON = 1.0  # seconds
_interrupts: list[float] = []  # times of Ctrl-C


def main() -> int:
    """Run a command; its exit code. Ctrl-C ends it without a message, also during imports."""
    sys.unraisablehook = _unraisable
    gc.set_threshold(_GC_THRESHOLD)
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # ignored in the background
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
    """Whether Ctrl-C caused an error. Python wraps an exception in a class body, and C modules replace it
    during their import: such errors come soon after."""
    if error is None or isinstance(error, (KeyboardInterrupt, SystemExit)):
        return isinstance(error, KeyboardInterrupt)
    is_soon = bool(_interrupts) and time.monotonic() - _interrupts[-1] < _SOON
    return is_soon or _is_interrupt(error.__cause__)


def _unraisable(hook: "sys.UnraisableHookArgs") -> None:
    """Exit on Ctrl-C in a callback or finalizer, where Python cannot raise it."""
    if not _is_interrupt(hook.exc_value):
        sys.__unraisablehook__(hook)
        return
    if os.isatty(2):
        os.write(2, _SHOW_CURSOR)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
