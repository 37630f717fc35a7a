"""Programs that are not trusted, each in a process of its own."""

from pteron.isolated.program import IsolatedMethod, IsolatedProgram, load_isolated

__all__ = ["IsolatedMethod", "IsolatedProgram", "load_isolated"]
