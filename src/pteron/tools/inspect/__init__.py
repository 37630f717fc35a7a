"""A file -> a report of its content: `inspect` for a terminal, `inspect.page` for a browser."""

from pteron.tools.inspect.program import inspect

__all__ = ["inspect"]
