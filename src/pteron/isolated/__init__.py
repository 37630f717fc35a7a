"""Untrusted programs, each in its own process."""

from pteron.isolated.program import IsolatedMethod, IsolatedProgram, load_isolated

__all__ = ["IsolatedMethod", "IsolatedProgram", "load_isolated"]
