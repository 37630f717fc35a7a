"""The bodies of requests, in OpenAI's format, checked field by field.

Unknown fields are ignored, as vLLM and llama-server do: clients keep adding some. A field that looks like a
misspelt one is an error. Features of OpenAI's and vLLM's that would change the answer, and that this server
lacks, are accepted only switched off.
"""

from __future__ import annotations

from difflib import get_close_matches
from itertools import repeat
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema, to_json

from pteron.llm.sampling_options import FINITE, OPTIONS

# Lists of objects are bounded because bodies are checked on the event loop, where other requests wait.
Many = Field(max_length=10_000)  # messages, or parts of one
Tools = Field(max_length=1000)

_SMALL = 16 << 10  # bytes
LOOKUPS_MAX = 32  # unknown names of a body that are compared with known ones, which takes up to 1 ms
MISSPELT, _WRONG = "misspelt", "wrong"  # types of errors
_SIMILAR = 0.85  # of names that may be meant as one; "min_tokens" and "max_tokens" have 0.8

Finite = Annotated[float, Field(allow_inf_nan=False)]


def _unsupported(reason: str, *neutral: object) -> AfterValidator:
    """Accepts only the values that switch a feature off."""

    def check(value: object) -> object:
        if value is not None and value not in neutral:
            raise wrong(reason)
        return value

    return AfterValidator(check)


def wrong(reason: str, **values: str) -> PydanticCustomError:
    """The error of a validator. pydantic keeps its text, but of a ValueError the traceback too, whose frames
    have the body."""
    return PydanticCustomError(_WRONG, reason, values)


class _OneOf:
    """One error for a field of several types or items; pydantic would report one for each."""

    def __init__(self, accepted: str) -> None:
        self._message = f"expected {accepted}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = handler(source)
        return core_schema.custom_error_schema(inner, _WRONG, custom_error_message=self._message)


def _check_small(value: Any) -> Any:
    if len(to_json(value)) > _SMALL:
        raise wrong(f"the limit is {_SMALL} bytes of JSON")
    return value


Small = AfterValidator(_check_small)  # of fields that each event of a response repeats
NoEcho = Annotated[bool | None, _unsupported("this server does not support echo", False)]
NoSuffix = Annotated[str | None, _unsupported("this server does not support suffix", "")]
NoBestOf = Annotated[int | None, _unsupported("this server does not support best_of; use n", 1)]
NoFunctions = Annotated[Any, _unsupported("functions are deprecated; use tools", [], "none", "auto")]
TextOnly = Annotated[Any, _unsupported("this server generates text only", ["text"])]
Unsupported = Annotated[Any, _unsupported("this server does not support this", {}, False)]
Texts = Annotated[
    str | list[str] | list[int] | list[list[int]],
    _OneOf("a string, a list of strings, a list of token ids (integers), or a list of such lists"),
]
Stops = Annotated[str | list[str] | None, _OneOf("a string or a list of strings")]


def _fail_fast(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") == "list":
            schema["fail_fast"] = True
        for part in schema.values():
            _fail_fast(part)
    elif isinstance(schema, list):
        for part in schema:
            _fail_fast(part)


class Fields(BaseModel):
    """The fields of an object in a body. The validation of a list ends at its first wrong item."""

    model_config = ConfigDict(strict=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _fail_fast(schema)
        return schema


class Body(Fields):
    """Unknown fields are ignored, and those that look misspelt are errors. `info.context` is an iterator that
    ends when no more names may be looked up."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _check_spelling(cls, given: Any, info: ValidationInfo) -> Any:
        if isinstance(given, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            unknown = (name for name in given if name not in known)
            for name, _ in zip(unknown, repeat(None) if info.context is None else info.context, strict=False):
                if near := get_close_matches(str(name)[:64].lower(), known, 1, _SIMILAR):
                    details = {"name": name, "near": near[0]}
                    raise PydanticCustomError(MISSPELT, "{name} is unknown; did you mean {near}?", details)
        return given


class JsonSchema(Body):
    name: str
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(Body):
    """OpenAI's formats; `grammar` has the fields that OpenAI's custom tools have."""

    type: Literal["text", "json_object", "json_schema", "grammar"]
    json_schema: JsonSchema | None = None
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None


class StructuredOutputs(Body):
    """vLLM's field: one of these."""

    json_: Annotated[dict[str, Any] | str | None, Field(alias="json")] = None
    regex: str | None = None
    grammar: str | None = None
    choice: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = None


class StreamOptions(Body):
    include_usage: bool | None = None


def _offered(name: str) -> Any:
    """The range of a sampling option over HTTP."""
    range = OPTIONS[name].http or OPTIONS[name].range
    return Field(
        gt=range.least if range.is_open else None,
        ge=None if range.is_open else range.least,
        le=range.most if range.most < FINITE else None,
    )


class SamplingBody(Body):
    """The fields of all APIs that generate text: OpenAI's names, and those of vLLM beyond OpenAI's."""

    model: str | None = None  # the only one
    stream: bool | None = None
    stop: Stops = None
    seed: int | None = None
    temperature: Annotated[Finite, _offered("temperature")] | None = None
    top_p: Annotated[Finite, _offered("top_p")] | None = None
    top_k: Annotated[int, _offered("top_k")] | None = None
    min_p: Annotated[Finite, _offered("min_p")] | None = None
    repetition_penalty: Annotated[Finite, _offered("repetition_penalty")] | None = None
    presence_penalty: Annotated[Finite, _offered("presence_penalty")] | None = None
    frequency_penalty: Annotated[Finite, _offered("frequency_penalty")] | None = None
    logit_bias: Annotated[
        dict[str, Annotated[Finite, Field(ge=-100, le=100)]] | None,
        _OneOf("an object of token ids and numbers from -100 to 100"),
    ] = None
    structured_outputs: StructuredOutputs | None = None
    min_tokens: Annotated[Any, _unsupported("this server does not support min_tokens", 0)] = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=1000)] | None = None
    use_beam_search: Unsupported = None
    prompt_logprobs: Unsupported = None


class GenerationBody(SamplingBody):
    """The fields of both chat completions and completions."""

    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    response_format: ResponseFormat | None = None

    @field_validator("stream_options")
    @classmethod
    def _check_stream(cls, value: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if value is not None and not info.data.get("stream"):
            raise wrong("stream_options needs stream")
        return value


class ImageUrl(Fields):
    """An image as a data URL."""

    url: str


class ContentPart(Fields):
    type: Literal["text", "refusal", "image_url"]
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | None = None

    @model_validator(mode="after")
    def _check_image(self) -> Self:
        if (self.type == "image_url") != (self.image_url is not None):
            raise wrong("a part of type image_url, and no other, has an image_url")
        return self

    @property
    def content(self) -> str:
        return (self.text if self.type == "text" else self.refusal) or ""


class CalledFunction(Fields):
    name: str
    arguments: str


class MessageToolCall(Fields):
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Fields):
    """Additional fields are passed to the chat template."""

    model_config = ConfigDict(extra="allow")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        str | Annotated[list[ContentPart], Many] | None,
        _OneOf("a string, or a list of parts of type text, refusal or image_url, with their fields"),
    ] = None
    tool_calls: list[MessageToolCall] | None = None

    @property
    def has_images(self) -> bool:
        return isinstance(self.content, list) and any(part.image_url for part in self.content)


class ToolFunction(Body):
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: ToolFunction


class FunctionName(BaseModel):
    name: str


class NamedTool(BaseModel):
    type: Literal["function"]
    function: FunctionName


class ChatBody(GenerationBody):
    """POST /v1/chat/completions"""

    messages: Annotated[list[Message], Field(min_length=1), Many]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Tools] | None = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | NamedTool | None,
        _OneOf('"none", "auto", "required", or the name of a function'),
    ] = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    functions: NoFunctions = None
    function_call: NoFunctions = None
    modalities: TextOnly = None
    audio: Unsupported = None
    prediction: Unsupported = None
    web_search_options: Unsupported = None


class TemplateBody(Body):
    """POST /apply_template"""

    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1), Many]
    tools: Annotated[list[Tool], Tools] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeBody(Body):
    """POST /tokenize: `prompt` (vLLM) or `content` (llama-server) is a text, `messages` a conversation."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: Annotated[list[Message], Many] | None = None
    tools: Annotated[list[Tool], Tools] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool = True
    add_special: bool | None = None
    with_pieces: bool = False
    return_token_strs: bool = False


class CompletionBody(GenerationBody):
    """POST /v1/completions"""

    prompt: Texts
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: NoEcho = None
    suffix: NoSuffix = None
    best_of: NoBestOf = None


class EmbeddingBody(Body):
    """POST /v1/embeddings"""

    model: str | None = None  # the only one
    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
