"""Findings that are kept, and which of them are open: by the key of the fault that they show."""

from __future__ import annotations

from pathlib import Path

FINDINGS = Path(__file__).parent / "findings"

# ruff: noqa: E501  # keys are lines of their own
# Whoever mends one takes its line away: the tests of it are expected to fail as long as it stands here.
OPEN: dict[str, str] = {
    "graphs-squeeze_of_no_rows.blob": "wrong twice: aten.squeeze_copy.dims",
    "graphs-upsample_by_infinity.blob": "OverflowError in families/resample/upsample.py <genexpr>",
    "hosted-embedding_bag_wild_indices.pte": "died by 11 in runtime/host_torch.py __call__",
    "hosted-endless_loop_around_a_delegate.pte": "TooSlowError in gpu/device.py readback",
    "hosted-input_written_in_place.pte": "wrong caller's array",
    "hosted-integers_squared.pte": "TooSlowError in runtime/host.py run",
    "hosted-rows_one_by_one.pte": "TooSlowError in runtime/host.py _copy_index",
    "llama2c-token_past_vocabulary.bin": "IndexError in llm/vocabularies/llama2c.py token_bytes",
    "plans-sums_of_f16.blob": "wrong extent of weight_sums in q8_matvec",
    "settings-model_is_a_number.folder": "TypeError in llm/llm.py __init__",
    "settings-template_is_a_number.folder": "AttributeError in llm/settings.py <dictcomp>",
    "settings-template_named_by_a_list.folder": "TypeError in llm/settings.py <dictcomp>",
    "settings-token_is_a_list.folder": "AttributeError in llm/vocabularies/llama2c.py token_id",
    "settings-token_without_content.folder": "KeyError in llm/settings.py <genexpr>",
    "settings-tokenizer_is_a_number.folder": "TypeError in llm/vocabularies/load.py _find",
    "template-center_of_a_billion.jinja": "MemoryError in llm/chat.py render",
    "template-divisible_by_zero.jinja": "ZeroDivisionError in llm/chat.py render",
    "template-generator_as_json.jinja": "TypeError in llm/chat.py tojson",
    "template-loop_over_a_boolean.jinja": "TypeError in llm/chat.py render",
    "template-macro_calls_itself.jinja": "RecursionError in llm/chat.py render",
    "template-range_too_long.jinja": "OverflowError in llm/chat.py render",
    "template-wrapped_at_zero.jinja": "ValueError in llm/chat.py render",
    "tiktoken-missing_byte.tiktoken": "PanicException in llm/vocabularies/tiktoken_ranks.py _encode",
    "tokenizer_json-decoder_without_type.json": "KeyError in llm/vocabularies/huggingface.py _steps",
    "tokenizer_json-encoding_panics.json": "PanicException in llm/vocabularies/huggingface.py <genexpr>",
    "tokenizer_json-half_a_character.json": "TypeError in llm/vocabularies/huggingface.py _encode",
    "tokenizer_json-id_outside_vocabulary.json": "wrong ids",
    "tokenizer_json-reading_panics.json": "PanicException in llm/vocabularies/huggingface.py __init__",
    "tokenizer_json-unknown_token_is_none.json": "Exception in llm/vocabularies/huggingface.py _encode",
    "tokenizer_model-half_a_character.model": "RuntimeError in llm/vocabularies/sentencepiece_model.py _encode",
}
