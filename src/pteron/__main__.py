"""python -m pteron, and the command `pteron`."""

import gc
import os
import sys
import time

# Python looks for modules in the current folder first, which may contain an untrusted json.py.
if sys.path[:1] in ([""], [os.getcwd()]):
    del sys.path[0]

INTERRUPTED = 130  # exit code after Ctrl-C, as in shells
_GC_THRESHOLD = 20_000  # new objects before GC runs: imports create many and leave no garbage
_SOON = 1.0  # seconds
_interrupted_at = -_SOON


def main() -> int:
    """Run a command; its exit code. Ctrl-C ends it without a message, also during imports."""
    gc.set_threshold(_GC_THRESHOLD)
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # ignored in the background
            signal.signal(signal.SIGINT, _interrupt)
        from pteron.cli import run_process

        run_process()
    except BaseException as error:
        # An import that is interrupted may raise another error: C modules replace the KeyboardInterrupt.
        if isinstance(error, KeyboardInterrupt) or time.monotonic() - _interrupted_at < _SOON:
            return INTERRUPTED
        raise


def _interrupt(number: int, frame: object) -> None:
    global _interrupted_at
    _interrupted_at = time.monotonic()
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
