"""Limits of a request: its size and its duration."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pteron.errors import InputError


@dataclass(frozen=True, slots=True)
class Limits:
    """A request above a limit is rejected with an error that names the limit."""

    body_bytes: int = 4 << 20
    header_bytes: int = 32 << 10
    connections: int = 512  # half of the files that the process may open, if that is less
    prompt_tokens: int = 1 << 20  # per prompt; the model's context is a limit too
    new_tokens: int = 4096  # per answer; also the length of a chat answer without `max_tokens`
    choices: int = 8  # answers per request: `n` times the number of prompts
    stops: int = 16
    stop_characters: int = 256  # per stop string
    schema_bytes: int = 128 << 10  # of a JSON schema, or of all tools together
    conversation_bytes: int = 64 << 20  # of all responses that `previous_response_id` may name
    inputs: int = 256  # texts per request for embeddings
    audio_bytes: int = 25 << 20  # of a request with sound
    audio_seconds: float = 7200.0  # of sound in one request
    seconds: float = 600.0  # from a request's arrival to the end of its answer
    header_seconds: float = 10.0  # for a request's headers to arrive
    body_seconds: float = 30.0  # for a request's body to arrive
    read_seconds: float = 60.0  # for a client to read what is sent to it

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise InputError(f"{field.name} must be above 0, not {getattr(self, field.name)!r}")
