"""The sampling parameters, lengths and formats of a request's body -> requests for the engine.

Parameters that a request leaves out are the model's own (`llm.sampling`, from its generation_config.json),
not OpenAI's temperature of 1: a model without such a file takes the most likely token.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from pteron.errors import InputError
from pteron.llm import Sampling
from pteron.llm.engine import Request as EngineRequest
from pteron.llm.images.prompt import PromptImage
from pteron.llm.sampling_options import OPTIONS, SEED_MAX
from pteron.llm.text_model import TextModel
from pteron.serving.api.schema import GenerationBody, ResponseFormat, StructuredOutputs
from pteron.serving.http.errors import ApiError, invalid_value
from pteron.serving.http.limits import Limits
from pteron.serving.http.request_log import RequestRecord
from pteron.serving.http.server_state import LoadedModel

_SEEDS = SEED_MAX + 1
_BIASES_MAX = 1024
_TOKEN = re.compile(r"[0-9]{1,10}")  # int() refuses thousands of digits


def engine_requests(
    model: LoadedModel,
    record: RequestRecord,
    body: GenerationBody,
    prompts: Sequence[tuple[int, ...]],
    *,
    new_tokens: int | None,
    top_logprobs: int,
    grammar: Any,
    stops: Sequence[str] = (),
    images: tuple[PromptImage, ...] = (),
) -> list[EngineRequest]:
    """`n` requests per prompt, each with its own seed. `stops` are strings beside the body's own; clients
    written for large models ask for more new tokens than the limit allows: such an answer ends at the limit,
    with the reason "length"."""
    llm, limits = model.llm, model.server.limits
    sampling = _sampling(body, llm, top_logprobs)
    request = EngineRequest(
        prompts[0],
        limits.new_tokens if new_tokens is None else min(new_tokens, limits.new_tokens),
        stop=(*_stop_strings(body, limits), *stops),
        stop_ids=_stop_ids(body, llm),
        grammar=grammar,
        seconds=max(limits.seconds - record.seconds, 0.001),
        adapter=body.model if body.model in model.adapters else None,
        images=images,
    )
    return [
        replace(request, ids=ids, sampling=replace(sampling, seed=(sampling.seed + number) % _SEEDS))
        for ids in prompts
        for number in range(body.n or 1)
    ]


def _sampling(body: GenerationBody, llm: TextModel, top_logprobs: int) -> Sampling:
    """The sampling of a request. Any integer is a seed; without one the seed is random."""
    given = {name: value for name in OPTIONS if (value := getattr(body, name, None)) is not None}
    if body.top_k is not None:
        given["top_k"] = max(0, body.top_k)  # some clients send -1 for "all"
    if body.logit_bias:
        given["logit_bias"] = _logit_bias(body.logit_bias, llm.model.vocabulary)
    seed = random.randrange(_SEEDS) if body.seed is None else body.seed % _SEEDS
    return replace(llm.sampling, **given | {"top_logprobs": top_logprobs, "seed": seed})


def _stop_strings(body: GenerationBody, limits: Limits) -> tuple[str, ...]:
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stops) > limits.stops:
        raise invalid_value(f"{len(stops)} stop strings; the limit is {limits.stops}", "stop")
    if any(not 0 < len(stop) <= limits.stop_characters for stop in stops):
        raise invalid_value(f"a stop string must have from 1 to {limits.stop_characters} characters", "stop")
    return tuple(stops)


def _stop_ids(body: GenerationBody, llm: TextModel) -> frozenset[int] | None:
    """The tokens that end an answer; None: the model's own."""
    if not body.ignore_eos and not body.stop_token_ids:
        return None
    own = () if body.ignore_eos else llm.eos_ids
    return frozenset((*own, *(body.stop_token_ids or ())))


def check_choices(body: GenerationBody, prompts: int, limits: Limits) -> None:
    """Raise for too many answers, before prompts are encoded."""
    total = (body.n or 1) * prompts
    if total > limits.choices:
        message = f"{total} answers; the limit is {limits.choices} per request"
        raise invalid_value(message, "prompt" if prompts > 1 else "n")


def response_grammar(body: GenerationBody, llm: TextModel, limits: Limits) -> Any:
    """The grammar of `response_format` or `structured_outputs`, or None."""
    given = _format_grammar(body.response_format), _vllm_grammar(body.structured_outputs)
    if all(given):
        raise invalid_value("give response_format or structured_outputs, not both", "structured_outputs")
    for param, found in zip(("response_format", "structured_outputs"), given, strict=True):
        if found:
            return compile_grammar(*found, llm, param, limits)
    return None


def compile_grammar(kind: str, source: Any, llm: TextModel, param: str, limits: Limits) -> Any:
    """A grammar of a `kind`, a constructor of Grammar: "json_schema", "regex" or "lark"."""
    from pteron.llm.grammar import Grammar  # here: an optional package

    if kind == "json_schema":
        check_schema_size(source, param, limits)
    try:
        return getattr(Grammar, kind)(llm.tokenizer, source, eos_ids=llm.eos_ids)
    except InputError as error:
        code = "invalid_json_schema" if kind == "json_schema" else "invalid_grammar"
        raise invalid_value(str(error), param, code=code) from error


def _format_grammar(format: ResponseFormat | None) -> tuple[str, Any] | None:
    """The kind and the source of the grammar of a response_format."""
    if format is None or format.type == "text":
        return None
    if format.type == "json_object":
        return "json_schema", {"type": "object"}
    if format.type == "grammar":
        if format.syntax is None or format.definition is None:
            raise _missing("syntax" if format.syntax is None else "definition")
        return format.syntax, format.definition
    if format.json_schema is None:
        raise _missing("json_schema")
    return "json_schema", format.json_schema.schema_ or {"type": "object"}


def _missing(field: str) -> ApiError:
    message = f"response_format.{field} is missing"
    return invalid_value(message, "response_format", code="missing_required_parameter")


def _vllm_grammar(given: StructuredOutputs | None) -> tuple[str, Any] | None:
    if given is None:
        return None
    choices = given.choice and "start: " + " | ".join(json.dumps(choice) for choice in given.choice)
    kinds = ("json_schema", given.json_), ("regex", given.regex), ("lark", given.grammar), ("lark", choices)
    found = [(kind, source) for kind, source in kinds if source is not None]
    if len(found) != 1:
        raise invalid_value("give one of json, regex, grammar and choice", "structured_outputs")
    return found[0]


def check_schema_size(schema: object, param: str, limits: Limits) -> None:
    size = len(to_json(schema))  # on the event loop, and three times as fast as json.dumps
    if size > limits.schema_bytes:
        raise invalid_value(
            f"{param}: {size} bytes of JSON schema; the limit is {limits.schema_bytes}", param
        )


def _logit_bias(given: dict[str, float], vocabulary: int) -> dict[int, float]:
    biases = {int(token): bias for token, bias in given.items() if _TOKEN.fullmatch(token)}
    if len(biases) < len(given) or len(given) > _BIASES_MAX or max(biases) >= vocabulary:
        message = f"logit_bias takes up to {_BIASES_MAX} token ids from 0 to {vocabulary - 1}"
        raise invalid_value(message, "logit_bias")
    return biases
