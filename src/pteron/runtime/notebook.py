"""How programs, methods and tensors look in a notebook: small tables of text, all of it escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from pteron.runtime.specs import ValueSpec


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A title above a table; nothing of what is given is taken for HTML."""
    heads = "".join(f"<th>{escape(text)}</th>" for text in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    body = f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody>"
    return f"<div><b>{escape(title)}</b><table>{body}</table></div>"


def spec_rows(inputs: Iterable[ValueSpec], outputs: Iterable[ValueSpec]) -> list[tuple[str, str, str]]:
    """Inputs and outputs, a row each: which side, what name, what is in it."""
    given = [("input", spec.name or str(place), str(spec)) for place, spec in enumerate(inputs)]
    return given + [("output", str(place), str(spec)) for place, spec in enumerate(outputs)]
