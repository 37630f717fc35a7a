"""Fixtures of tests that serve."""

from __future__ import annotations

from engine_fixtures import engine, llm, watched  # noqa: F401  # fixtures
