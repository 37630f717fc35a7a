"""A tokenizer -> llguidance's tokenizer: the bytes of each token, and which are control tokens.

Each tokenizer has one Vocabulary, which caches its compiled grammars and is freed with the tokenizer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, ref

from pteron.errors import FormatError, PteronError
from pteron.extras import need
from pteron.gpu.fork import new_lock
from pteron.llm.tokenizers.tokenizer import Tokenizer
from pteron.names.model_files import as_format_error

GRAMMARS_MAX = 64  # cached per tokenizer
FORCED_MAX = 128  # characters of forced text that are tokenised at once
_LONGEST = 64  # bytes of a token that the greedy search finds


class Vocabulary:
    def __init__(self, tokenizer: Tokenizer, eos_ids: tuple[int, ...]) -> None:
        library = need("llguidance", "a grammar", "serve")
        self.eos_ids = eos_ids
        self._compiled: OrderedDict[str, Any] = OrderedDict()
        self._lock = new_lock()
        with as_format_error(f"{tokenizer.name} cannot be used with a grammar"):
            tokens = _Tokens(tokenizer, eos_ids)
            self.tokens = library.LLTokenizer(tokens, n_vocab=len(tokens.tokens), eos_token=list(tokens.ends))

    def compiled(self, text: str, compile: Callable[[], Any]) -> Any:
        """The compiled grammar of a source text, from the cache or compiled now."""
        with self._lock:
            found = self._compiled.get(text)
            if found is not None:
                self._compiled.move_to_end(text)
                return found
        made = compile()  # without the lock: other threads may compile
        with self._lock:
            self._compiled[text] = made
            while len(self._compiled) > GRAMMARS_MAX:
                self._compiled.popitem(last=False)
        return made


_vocabularies: WeakKeyDictionary[Tokenizer, Vocabulary] = WeakKeyDictionary()


def vocabulary_of(tokenizer: Tokenizer, eos_ids: tuple[int, ...]) -> Vocabulary:
    """The cached vocabulary of a tokenizer with these EOS tokens."""
    found = _vocabularies.get(tokenizer)
    if found is None or found.eos_ids != eos_ids:
        found = _vocabularies[tokenizer] = Vocabulary(tokenizer, eos_ids)
    return found


class _Tokens:
    """The attributes that llguidance reads from a tokenizer. Holds only a weak reference to the tokenizer."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer, eos_ids: tuple[int, ...]) -> None:
        count = tokenizer.vocab_size
        outside = [token for token in eos_ids if not 0 <= token < count]
        if outside:
            raise FormatError(f"EOS token {outside[0]} is outside the vocabulary of {count} tokens")
        plain = [tokenizer.token_bytes(token) for token in range(count)]
        # llguidance requires an EOS token. Without one, an id after the last is used, which is never sampled.
        self.ends = eos_ids or (count,)
        self.special_token_ids = [token for token in range(count) if not plain[token]]
        self.special_token_ids += [token for token in self.ends if token not in set(self.special_token_ids)]
        self.tokens = [data or _name(tokenizer, token) for token, data in enumerate(plain)]
        self.tokens += [] if eos_ids else [b"<end>"]
        self.eos_token_id, self.bos_token_id = self.ends[0], tokenizer.bos_id
        special = set(self.special_token_ids)
        self._ids = {data: token for token, data in enumerate(plain) if token not in special}
        self._tokenizer = ref(tokenizer)

    def __call__(self, text: str) -> list[int]:
        """The first tokens of a text that the grammar forces, split as the tokenizer splits it if that gives
        the same bytes."""
        text = text[:FORCED_MAX]
        wanted = text.encode()
        tokenizer = self._tokenizer()
        try:
            ids = tokenizer.encode(text) if tokenizer else []
        except PteronError:
            ids = []
        parts = [tokenizer.token_bytes(token) for token in ids] if tokenizer else []
        # Encoding may add a leading space.
        if ids and b"".join(parts) == b" " + wanted and parts[0].startswith(b" "):
            return [*self._greedy(parts[0][1:]), *ids[1:]]
        return ids if ids and b"".join(parts) == wanted else self._greedy(wanted)

    def _greedy(self, data: bytes) -> list[int]:
        """The longest matching token, repeated until none matches."""
        found: list[int] = []
        while data:
            sizes = range(min(len(data), _LONGEST), 0, -1)
            size = next((size for size in sizes if data[:size] in self._ids), 0)
            if not size:
                break
            found.append(self._ids[data[:size]])
            data = data[size:]
        return found


def _name(tokenizer: Tokenizer, token: int) -> bytes:
    return (tokenizer.token_text(token) or f"<{token}>").encode()
