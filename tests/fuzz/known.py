"""Findings that are kept, and which of them are open: by the key of the fault that they show."""

from __future__ import annotations

from pathlib import Path

FINDINGS = Path(__file__).parent / "findings"

# Whoever mends one takes its line away: the tests of it are expected to fail as long as it stands here.
OPEN: dict[str, str] = {
    "archive-size_is_a_long_text.ptex": "too long a message: FormatError in plan/archive/reader.py read",
    "config-epsilon_is_a_text.folder": "ValueError in llm/export/huggingface.py read_parameters",
    "config-factor_is_an_object.folder": "TypeError in llm/export/rope_scaling.py rope_parameters",
    "config-low_factor_is_an_object.folder": "TypeError in llm/export/rope_scaling.py llama3_factors",
    "config-no_heads.folder": "ZeroDivisionError in llm/export/huggingface.py read_parameters",
    "config-scaling_is_a_number.folder": "AttributeError in llm/export/rope_scaling.py rope_parameters",
    "config-size_is_a_text.folder": "TypeError in llm/export/huggingface.py read_parameters",
    "graphs-product_of_no_columns.blob": (
        "wrong device, binding the buffers of node N et_vk.linear_qNgsw.default"
    ),
    "gguf-merge_outside_vocabulary.gguf": "Exception in llm/export/gguf_vocabulary.py _byte_level",
}
