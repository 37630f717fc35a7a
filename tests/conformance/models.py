"""The models of the generic backend suite, apart from its operators: they take minutes each."""

from __future__ import annotations

from conformance.generic import recipes_of, record

__all__ = ["recipes", "record"]


def recipes() -> list[str]:
    """Every model, with static and with dynamic shapes where the suite has both."""
    return recipes_of("models")
