"""Records of language models -> the last section of docs/models.md."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

from zoo.report import LANGUAGE, PAGE, versions

TYPES_NAME = "gguf type "  # before a type, in the names of records
TITLES = {
    "AFM": ("arcee",),
    "Apertus": ("apertus",),
    "Bamba": ("bamba",),
    "BLOOM": ("bloom",),
    "Command R, Aya; Command R7B, A": ("cohere", "cohere2"),
    "DeepSeek V2, V3": ("deepseek_v2", "deepseek_v3"),
    "ERNIE 4.5": ("ernie4_5", "ernie4_5_moe"),
    "EXAONE 4": ("exaone4",),
    "Falcon": ("falcon",),
    "Falcon-H1": ("falcon_h1",),
    "Gemma 1, 2, 3": ("gemma", "gemma2", "gemma3_text"),
    "GLM-4, GLM-4.5": ("glm", "glm4", "glm4_moe"),
    "gpt-oss": ("gpt_oss",),
    "GPT-2": ("gpt2",),
    "GPT-J": ("gptj",),
    "GPT-NeoX, Pythia": ("gpt_neox",),
    "Granite 3, 4": ("granite", "granitemoe", "granitemoehybrid"),
    "HunYuan": ("hunyuan_v1_dense",),
    "LFM2": ("lfm2", "lfm2_moe"),
    "Llama 1 to 3, SmolLM2": ("llama",),
    "Llama 4": ("llama4_text",),
    "Mamba-2": ("mamba2",),
    "Mistral, Ministral": ("mistral", "ministral", "ministral3"),
    "Mixtral": ("mixtral",),
    "MPT": ("mpt",),
    "Nemotron, Nemotron-H": ("nemotron", "nemotron_h"),
    "OLMo 1, 2, 3; OLMoE": ("olmo", "olmo2", "olmo3", "olmoe"),
    "OPT": ("opt",),
    "Phi-1 to Phi-4": ("phi", "phi3"),
    "Qwen2, Qwen3": ("qwen2", "qwen3"),
    "Qwen2-MoE, Qwen3-MoE": ("qwen2_moe", "qwen3_moe"),
    "Qwen3-Next, Qwen3.5": ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    "Seed-OSS": ("seed_oss",),
    "SmolLM3": ("smollm3",),
    "StableLM 2": ("stablelm",),
    "StarCoder 2": ("starcoder2",),
}
INTRODUCTION = """\
Written by `scripts/models --llm`, which makes checkpoints with random weights of every family in
[export.md](export.md#families), builds them without quantisation and compares their logits with
`transformers` in float64: the same 60 tokens in calls of several lengths (prefill), and one after the other
after a prompt of 5 (decode). Windows have 8 tokens.

- checkpoints: variants with other settings; the errors are those of the worst.
- error: the largest difference of logits, divided by the largest logit. From a Hugging Face folder, and from
  a GGUF file in llama.cpp's layout, if it has the family.
- "in float32" is the error of `transformers` in float32, where ours is above 1e-5; up to three times that is
  right.
- build: processor seconds of the slowest, from the checkpoint to the program.
"""
TYPES = """\
### Types of GGUF files

Checkpoints whose matrices have a type, beside the dequantised weights in float64. Without quantisation
(`--quantize none`) every type is exact, and so it is with `8g`, the default of such files
([bits per weight](export.md#quantised-gguf-files)): the last columns have the largest error of the dense
checkpoints, and that of `mixtral`. F16 is rounded to 8 bits in groups there. Random weights make errors of
rounding larger than trained ones; see [perplexity](#perplexity) for those.
"""
EXPERTS = "mixtral"
KINDS = ("prefill", "decode", "gguf prefill", "gguf decode")
Record = dict[str, Any]


def write_section(records: Sequence[Record]) -> None:
    """Replace the section, but for its last part, which is written by hand."""
    page = PAGE.read_text() if PAGE.exists() else ""
    before, _, section = page.partition(LANGUAGE)
    _, heading, rest = section.partition("### Perplexity\n")
    PAGE.write_text(before + "\n".join(_section(records)) + "\n" + heading + rest)


def _section(records: Sequence[Record]) -> Iterator[str]:
    models = [record for record in records if not record["name"].startswith(TYPES_NAME)]
    types = [record for record in records if record["name"].startswith(TYPES_NAME)]
    yield LANGUAGE
    yield INTRODUCTION
    day = datetime.datetime.now(tz=datetime.UTC).date()
    yield f"{day} · {', '.join(versions('transformers', 'gguf'))}\n"
    heads = ("family", "model types", "GGUF", "checkpoints", "prefill", "decode")
    yield f"| {' | '.join(heads)} | GGUF, prefill | GGUF, decode | build | |"
    yield "|---|---|---|--:|--:|--:|--:|--:|--:|---|"
    known = {kind for kinds in TITLES.values() for kind in kinds}
    others = {record["model_type"]: (record["model_type"],) for record in models}
    titles = TITLES | {title: kinds for title, kinds in others.items() if title not in known}
    for title, kinds in titles.items():
        if members := [record for record in models if record["model_type"] in kinds]:
            yield _row(title, members)
    yield ""
    if types:
        yield from _types(types)


def _row(title: str, members: Sequence[Record]) -> str:
    kinds = ", ".join(f"`{kind}`" for kind in dict.fromkeys(record["model_type"] for record in members))
    files = dict.fromkeys(record["architecture"] for record in members if "architecture" in record)
    cells = [title, kinds, ", ".join(f"`{file}`" for file in files), str(len(members))]
    for kind in KINDS:
        errors = [record["errors"][kind] for record in members if kind in record["errors"]]
        cells.append(f"{max(errors):.1e}" if errors else "")
    seconds = [record["build_s"] for record in members if "build_s" in record]
    cells.append(f"{max(seconds):.2f} s" if seconds else "")
    refused = dict.fromkeys(record["refused"] for record in members if record["refused"])
    notes = [f"**refused**: {reason[:200]}" for reason in refused]
    notes += [f"`{one['name']}` in float32: {one['eager']:.1e}" for one in members if "eager" in one]
    cells.append("; ".join(notes))
    return f"| {' | '.join(cells)} |"


def _types(types: Sequence[Record]) -> Iterator[str]:
    yield TYPES
    names = list(types[0]["errors"])
    shown = " | ".join(f"`{name}`" for name in names)
    yield f"| type | {shown} | `8g`, dense | `8g`, `{EXPERTS}` |"
    yield f"|---|{'--:|' * (len(names) + 2)}"
    for record in types:
        cells = [f"{record['errors'][name]:.1e}" for name in names]
        dense = max(error for name, error in record["grouped"].items() if name != EXPERTS)
        cells += [f"{dense:.1e}", f"{record['grouped'][EXPERTS]:.1e}"]
        yield f"| {record['name'].removeprefix(TYPES_NAME)} | {' | '.join(cells)} |"
    yield ""
