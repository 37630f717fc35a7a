"""The bodies of requests: what clients of OpenAI's API send, checked field by field.

A field that is not known is refused, as OpenAI does: nothing that a client asks for is left out in silence.
Fields that change no answer (`user`, `metadata`, ...) are taken and not looked at; those of OpenAI's that
this server cannot do are taken at the value that asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WrapValidator

Finite = Annotated[float, Field(allow_inf_nan=False)]
Unheeded = Any  # says nothing about the answer


def _asking_nothing(reason: str, *neutral: object) -> AfterValidator:
    """Takes the values that ask for nothing, and says why it takes no others."""

    def check(value: object) -> object:
        if value is not None and value not in neutral:
            raise ValueError(reason)
        return value

    return AfterValidator(check)


def _one_of(accepted: str) -> WrapValidator:
    """Says what a field of several types takes: why each of these does not fit is told of the first alone."""

    def check(value: object, inner: Callable[[object], object]) -> object:
        try:
            return inner(value)
        except ValidationError:
            raise ValueError(f"expected {accepted}") from None

    return WrapValidator(check)


NoEcho = Annotated[bool | None, _asking_nothing("this server does not repeat the prompt (echo)", False)]
NoSuffix = Annotated[str | None, _asking_nothing("this server does not fill gaps (suffix)", "")]
NoBest = Annotated[int | None, _asking_nothing("this server picks no best of several answers; use n", 1)]
NoFunctions = Annotated[Any, _asking_nothing("functions are out of date; use tools", [], "none", "auto")]
TextAlone = Annotated[Any, _asking_nothing("this server writes text alone", ["text"])]
Absent = Annotated[Any, _asking_nothing("this server has no such thing", {})]
Texts = Annotated[
    str | list[str] | list[int] | list[list[int]],
    _one_of("a string, a list of strings, a list of token ids (integers), or a list of such lists"),
]
Stops = Annotated[str | list[str] | None, _one_of("a string or a list of strings")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(_Body):
    include_usage: bool | None = None
    include_obfuscation: Unheeded = None


class Generation(_Body):
    """What chats and completions share."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stop: Stops = None
    seed: int | None = None
    temperature: Annotated[Finite, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[Finite, Field(gt=0)] | None = None
    presence_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[str, Annotated[Finite, Field(ge=-100, le=100)]] | None = None
    user: Unheeded = None
    metadata: Unheeded = None
    store: Unheeded = None
    service_tier: Unheeded = None
    safety_identifier: Unheeded = None
    prompt_cache_key: Unheeded = None
    prompt_cache_retention: Unheeded = None


class Part(BaseModel):
    """A part of a message's content."""

    model_config = ConfigDict(strict=True)
    type: Literal["text", "refusal"]
    text: str | None = None
    refusal: str | None = None

    @property
    def said(self) -> str:
        return (self.text if self.type == "text" else self.refusal) or ""


class CalledFunction(BaseModel):
    model_config = ConfigDict(strict=True)
    name: str
    arguments: str


class Call(BaseModel):
    model_config = ConfigDict(strict=True)
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(BaseModel):
    """A turn of a conversation; what else it has reaches the model's chat template."""

    model_config = ConfigDict(extra="allow", strict=True)
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        str | list[Part] | None, _one_of("a string, or a list of parts of type text or refusal")
    ] = None
    tool_calls: list[Call] | None = None


class Function(_Body):
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Body):
    type: Literal["function"]
    function: Function


class FunctionName(BaseModel):
    name: str


class NamedTool(BaseModel):
    type: Literal["function"]
    function: FunctionName


class JsonSchema(_Body):
    name: str
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(_Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class ChatBody(Generation):
    """POST /v1/chat/completions"""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | NamedTool | None,
        _one_of('"none", "auto", "required", or a function by its name'),
    ] = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    functions: NoFunctions = None
    function_call: NoFunctions = None
    modalities: TextAlone = None
    audio: Absent = None
    prediction: Absent = None
    web_search_options: Absent = None


class CompletionBody(Generation):
    """POST /v1/completions"""

    prompt: Texts
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: NoEcho = None
    suffix: NoSuffix = None
    best_of: NoBest = None


class EmbeddingBody(_Body):
    """POST /v1/embeddings"""

    model: str
    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: Unheeded = None
