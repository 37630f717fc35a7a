"""Sampling: the settings of a sampler, checked by the table of options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from reprlib import repr as shortened

from pteron.errors import InputError
from pteron.llm.arguments import integer, number
from pteron.llm.sampling_options import OPTIONS, check_options

BIAS_MAX = 100.0  # a bias of -BIAS_MAX bans a token


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. The default is greedy: always the likeliest token.

    With a `temperature` above 0, tokens are drawn from softmax(logits / temperature). Three filters restrict
    the candidates, in this order: `top_k` keeps that many of the likeliest tokens; `top_p` keeps the
    likeliest tokens whose probabilities add up to it; `min_p` keeps tokens at least `min_p` times as likely
    as the likeliest. Equal seeds draw equal tokens from equal logits.

    The logits are changed before that. `logit_bias` adds to logits by token id; -100 bans a token. A
    `repetition_penalty` above 1 makes tokens of the prompt and drawn tokens less likely. `presence_penalty`
    is subtracted once from the logit of each drawn token, `frequency_penalty` once for every time the token
    was drawn.

    `top_logprobs` returns that many of the likeliest tokens with each drawn token, and their
    log-probabilities under the unchanged logits.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()  # stored as pairs, sorted by token
    top_logprobs: int = 0

    def __post_init__(self) -> None:
        for name, value in check_options({name: getattr(self, name) for name in OPTIONS}, self).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        assert isinstance(self.logit_bias, tuple)
        return self.logit_bias

    def check_vocabulary(self, vocabulary: int) -> None:
        """Raise if a bias is for no token of a vocabulary, or if the biases ban all of its tokens."""
        if self.biases and self.biases[-1][0] >= vocabulary:
            token = self.biases[-1][0]
            raise InputError(f"logit_bias: token {token} is outside the vocabulary of {vocabulary}")
        if sum(bias <= -BIAS_MAX for _, bias in self.biases) == vocabulary:
            raise InputError(f"logit_bias bans all {vocabulary} tokens of the vocabulary; allow at least one")


def _biases(given: object) -> tuple[tuple[int, float], ...]:
    """Checked pairs of a token id and its bias, sorted by token."""
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, Iterable) or isinstance(pairs, (str, bytes)):
        raise InputError(f"logit_bias must be a mapping of tokens to numbers, not {shortened(given)}")
    found: dict[int, float] = {}
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"logit_bias must be pairs of a token and a number, not {shortened(pair)}")
        token, bias = integer("each token of logit_bias", pair[0]), number("each bias of logit_bias", pair[1])
        if token < 0 or token in found:
            what = "is negative" if token < 0 else "is given twice"
            raise InputError(f"logit_bias: token {token} {what}")
        if not -BIAS_MAX <= bias <= BIAS_MAX:
            raise InputError(f"logit_bias: {bias} for token {token} is not from -100 to 100")
        found[token] = bias
    return tuple(sorted(found.items()))
