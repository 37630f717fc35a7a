"""What one request may ask for, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pteron.errors import InputError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server. What is past one is refused with an error that names it."""

    body_bytes: int = 4 << 20  # of a request
    header_bytes: int = 32 << 10
    prompt_tokens: int = 1 << 20  # of a prompt; the model's context bounds it too
    new_tokens: int = 4096  # of an answer, and what chat answers get where a request names no number
    choices: int = 8  # answers of one request: `n` times the number of prompts
    stops: int = 16
    stop_characters: int = 256  # of a stop string
    schema_bytes: int = 128 << 10  # of a JSON schema, or of all tools together
    inputs: int = 256  # texts of one request for embeddings
    seconds: float = 600.0  # from a request's arrival to the end of its answer
    body_seconds: float = 30.0  # for a request's body to arrive
    read_seconds: float = 60.0  # for a client to take what is sent to it

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise InputError(
                    f"a server's {field.name} must be above 0, not {getattr(self, field.name)!r}"
                )
