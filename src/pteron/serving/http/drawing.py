"""What a request says of its answer's tokens -> what the engine takes.

Where a request says nothing of how tokens are drawn, what the model's authors recommend holds
(`llm.sampling`), not OpenAI's temperature of 1: a model without a recommendation takes the likeliest token.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import Any

from pteron.llm import Sampling
from pteron.llm.text_model import TextModel
from pteron.serving.http.errors import ApiError
from pteron.serving.http.limits import Limits
from pteron.serving.http.schema import Generation, ResponseFormat

_NAMES = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_SEEDS = 1 << 31
_BIASES_MAX = 1024
_TOKEN = re.compile(r"[0-9]{1,10}")  # no vocabulary has more, and Python makes no number of thousands


def sampling_of(body: Generation, llm: TextModel, top_logprobs: int) -> Sampling:
    """How the tokens of an answer are drawn. A seed is any integer; without one, each answer has its own."""
    given: dict[str, Any] = {name: getattr(body, name) for name in _NAMES if getattr(body, name) is not None}
    if body.top_k is not None:
        given["top_k"] = max(0, body.top_k)  # -1 is how some clients spell "all"
    if body.logit_bias:
        given["logit_bias"] = _biases(body.logit_bias, llm.model.vocabulary)
    seed = random.randrange(_SEEDS) if body.seed is None else body.seed % _SEEDS
    if top_logprobs:
        given["top_logprobs"] = top_logprobs
    return replace(llm.sampling, **given, seed=seed)


def nth(sampling: Sampling, number: int) -> Sampling:
    """Of several answers to one request, each draws on its own."""
    return replace(sampling, seed=(sampling.seed + number) % _SEEDS)


def stops_of(body: Generation, limits: Limits) -> tuple[str, ...]:
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stops) > limits.stops:
        message = f"{len(stops)} stop strings; this server takes {limits.stops} at most"
        raise ApiError(400, message, param="stop", code="invalid_value")
    if any(not 0 < len(stop) <= limits.stop_characters for stop in stops):
        message = f"a stop string has from 1 to {limits.stop_characters} characters"
        raise ApiError(400, message, param="stop", code="invalid_value")
    return tuple(stops)


def tokens_of(given: int | None, default: int, param: str, limits: Limits) -> int:
    """How many tokens an answer may have."""
    if given is not None and given > limits.new_tokens:
        message = f"{param} is {given}; this server's answers have {limits.new_tokens} tokens at most"
        raise ApiError(400, message, param=param, code="invalid_value")
    return min(default, limits.new_tokens) if given is None else given


def choices_of(count: int | None, prompts: int, limits: Limits) -> int:
    """How many answers a request wants for each prompt."""
    if (count or 1) * prompts > limits.choices:
        message = f"{(count or 1) * prompts} answers; this server gives {limits.choices} at most to a request"
        raise ApiError(400, message, param="prompt" if prompts > 1 else "n", code="invalid_value")
    return count or 1


def grammar_of(wanted: ResponseFormat | None, llm: TextModel, limits: Limits) -> Any:
    """What binds an answer to a form, or None."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        from pteron.llm.grammar import Grammar  # here: it is another library's work

        return Grammar.json_object(llm.tokenizer)
    if wanted.json_schema is None:
        message = "response_format.json_schema is missing"
        raise ApiError(400, message, param="response_format", code="missing_required_parameter")
    return schema_grammar(wanted.json_schema.schema_ or {"type": "object"}, llm, "response_format", limits)


def schema_grammar(schema: dict[str, Any], llm: TextModel, param: str, limits: Limits) -> Any:
    """A grammar of the JSON that fits a schema."""
    from pteron.errors import InputError
    from pteron.llm.grammar import Grammar

    check_size(schema, param, limits)
    try:
        return Grammar.json_schema(llm.tokenizer, schema)
    except InputError as error:
        raise ApiError(400, str(error), param=param, code="invalid_json_schema") from error


def check_size(schema: object, param: str, limits: Limits) -> None:
    size = len(json.dumps(schema))
    if size > limits.schema_bytes:
        message = (
            f"{param} holds {size} bytes of JSON schema; this server takes {limits.schema_bytes} at most"
        )
        raise ApiError(400, message, param=param, code="invalid_value")


def _biases(given: dict[str, float], vocabulary: int) -> dict[int, float]:
    tokens = {int(token): bias for token, bias in given.items() if _TOKEN.fullmatch(token)}
    if len(tokens) < len(given) or len(given) > _BIASES_MAX or max(tokens) >= vocabulary:
        message = f"logit_bias names tokens by number, from 0 to {vocabulary - 1}, {_BIASES_MAX} at most"
        raise ApiError(400, message, param="logit_bias", code="invalid_value")
    return tokens
