"""Chat templates of the form of well-known families, reduced to what decides the form of an answer, and an
answer of each with two calls."""

from __future__ import annotations

from dataclasses import dataclass

from pteron.serving.answer.format import CallFormat


@dataclass(frozen=True)
class Family:
    """`said`: reasoning, text and a call of `weather` as the model would write them; `thinks`: its tags."""

    template: str
    said: str
    calls: CallFormat | None
    thinks: tuple[str, str] | None = None
    count: int = 2  # calls in `said`


PARIS, ROME = '{"city": "Paris"}', '{"city": "Rome"}'
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{% if not loop.first %}{{ '\n' }}{% endif %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TAGGED = CallFormat("json", "<tool_call>\n", "\n</tool_call>", section_end="", arguments="arguments")
TAGGED_CALLS = (
    f'<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>\n'
    f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>'
)
QWEN_3 = Family(
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    + CHATML.replace(
        "<|im_start|>assistant\n{% endif %}",
        "<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}"
        "<think>\n\n</think>\n\n{% endif %}{% endif %}",
    ),
    f"<think>\nHm.\n</think>\n\nLet me see.\n{TAGGED_CALLS}",
    TAGGED,
    ("<think>", "</think>"),
)
HERMES = Family(
    "{{ bos_token }}{% if tools %}<|im_start|>system\nFunctions: {{ tools | tojson }}<|im_end|>\n{% endif %}"
    + CHATML.replace(
        "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}",
        "",
    ),
    f"Let me see.\n{TAGGED_CALLS}",
    TAGGED,
)
LLAMA_3 = Family(
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one only') }}{% endif %}"
    "{% set c = m.tool_calls[0].function %}<|start_header_id|>assistant<|end_header_id|>\n\n"
    '{"name": "{{ c.name }}", "parameters": {{ c.arguments | tojson }}}<|eot_id|>'
    "{% else %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{% if loop.first and tools %}Answer with JSON. {{ tools | tojson }}{% endif %}{{ m.content }}<|eot_id|>"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    f'{{"name": "weather", "parameters": {PARIS}}}',
    CallFormat(),
    count=1,
)
MISTRAL = Family(
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'user' %}"
    "{% if tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "[INST] {{ m.content }}[/INST]"
    "{% elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('nine letters') }}{% endif %}"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}'
    "{% if not loop.last %}, {% endif %}{% endfor %}]{{ eos_token }}"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
    f'[TOOL_CALLS] [{{"name": "weather", "arguments": {PARIS}, "id": "abcdefgh1"}}, '
    f'{{"name": "weather", "arguments": {ROME}}}]',
    CallFormat("list", "[TOOL_CALLS] ", "", arguments="arguments"),
)
SMOLLM_3 = Family(  # it renders no calls; its instructions show them
    "{% set off = enable_thinking is defined and not enable_thinking %}"
    "<|im_start|>system\nReasoning: {{ '/no_think' if off else '/think' }}\n"
    '{% if tools %}Call them as <tool_call>\n{"name": …, "arguments": …}\n</tool_call>: {{ tools | tojson }}'
    "{% endif %}<|im_end|>\n{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if off %}<think>\n\n</think>\n{% endif %}{% endif %}",
    f"<think>\nHm.\n</think>\n\nLet me see.\n{TAGGED_CALLS}",
    CallFormat("json", "<tool_call>", "</tool_call>", arguments="arguments"),
    ("<think>", "</think>"),
)
GEMMA_3 = Family(
    "{{ bos_token }}{% for m in messages %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    "It rains.",
    None,
    count=0,
)
PHI_4 = Family(
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% if loop.first and tools %}<|tool|>{{ tools | tojson }}<|/tool|> "
    "Call as <|tool_call|>[…]<|/tool_call|>{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% else %}{{ eos_token }}{% endif %}",
    f'<|tool_call|>[{{"name": "weather", "arguments": {PARIS}}}, {{"name": "weather", "arguments": {ROME}}}]'
    "<|/tool_call|>",
    CallFormat("list", "<|tool_call|>", "<|/tool_call|>", arguments="arguments"),
)
DEEPSEEK = Family(
    "{{ bos_token }}{% if tools %}Tools: {{ tools | tojson }}{% endif %}{% for m in messages %}"
    "{% if m.role == 'user' %}<｜User｜>{{ m.content }}"  # noqa: RUF001
    "{% else %}<｜Assistant｜>{{ m.content.split('</think>')[-1] }}"  # noqa: RUF001
    "{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}"  # noqa: RUF001
    "{% if not loop.first %}{{ '\n' }}{% endif %}<｜tool▁call▁begin｜>function<｜tool▁sep｜>"  # noqa: RUF001
    "{{ c.function.name + '\n```json\n' + c.function.arguments + '\n```' }}"
    "<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>{% endif %}{{ eos_token }}{% endif %}{% endfor %}"  # noqa: RUF001
    "{% if add_generation_prompt %}<｜Assistant｜><think>\n{% endif %}",  # noqa: RUF001
    "Hm.\n</think>\n\nLet me see.\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n"  # noqa: RUF001
    f"```json\n{PARIS}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{ROME}\n```"  # noqa: RUF001
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",  # noqa: RUF001
    CallFormat(
        "named",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",  # noqa: RUF001
        "\n```<｜tool▁call▁end｜>",  # noqa: RUF001
        "<｜tool▁calls▁begin｜>",  # noqa: RUF001
        "<｜tool▁calls▁end｜>",  # noqa: RUF001
        "\n```json\n",
        "arguments",
        as_text=True,
    ),
    ("<think>", "</think>"),
)
GPT_OSS = Family(
    "{% if tools %}<|start|>developer<|message|>{{ tools | tojson }}<|end|>{% endif %}{% for m in messages %}"
    "<|start|>{{ m.role }}{% if m.tool_calls %} to=functions.{{ m.tool_calls[0].function.name }}"
    "<|channel|>commentary json<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>"
    "{% else %}<|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
    "<|channel|>analysis<|message|>Hm.<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>Let me see.\n<|end|>"
    f"<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{PARIS}<|end|>"
    f"<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{ROME}",
    CallFormat(
        "named",
        "<|channel|>commentary to=functions.",
        separator=" <|constrain|>json<|message|>",
    ),
    ("", ""),
)
GRANITE = Family(
    "{% if tools %}<|start_of_role|>tools<|end_of_role|>{{ tools | tojson }}<|end_of_text|>\n"
    "<|start_of_role|>system<|end_of_role|>Begin calls with <|tool_call|>[…]<|end_of_text|>{% endif %}"
    "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}",
    f'<|tool_call|>[{{"name": "weather", "arguments": {PARIS}}}, {{"name": "weather", "arguments": {ROME}}}]',
    CallFormat("list", "<|tool_call|>", "", arguments="arguments"),
)
QWEN_3_CODER = Family(
    "{% if tools %}<|im_start|>system\n{% for t in tools %}<function>\n<name>{{ t.function.name }}</name>\n"
    "</function>\n{% endfor %}<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}{% for c in m.tool_calls or [] %}\n<tool_call>\n<function={{ c.function.name }}>\n"
    "{% for key, value in c.function.arguments | items %}<parameter={{ key }}>\n"
    "{{ value | tojson | safe if value is mapping else value }}"
    "\n</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "Let me see.\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"
    "</tool_call>\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n"
    "</tool_call>",
    CallFormat(
        "xml",
        "<tool_call>\n<function=",
        "</function>\n</tool_call>",
        separator=">\n",
        arguments="arguments",
        parameter="<parameter=",
        key_end=">\n",
        value_end="\n</parameter>\n",
    ),
)
GLM_4 = Family(
    "[gMASK]<sop>{% if tools %}<|system|>\n{{ tools | tojson }}{% endif %}{% for m in messages %}"
    "<|{{ m.role }}|>\n{{ m.content }}{% for c in m.tool_calls or [] %}\n<tool_call>{{ c.function.name }}\n"
    "{% for key, value in c.function.arguments | items %}<arg_key>{{ key }}</arg_key>\n"
    "<arg_value>{{ value }}</arg_value>\n{% endfor %}</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    "Let me see.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>\n"
    "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>",
    CallFormat(
        "xml",
        "<tool_call>",
        "</tool_call>",
        separator="\n",
        arguments="arguments",
        parameter="<arg_key>",
        key_end="</arg_key>\n<arg_value>",
        value_end="</arg_value>\n",
    ),
)
FAMILIES = {
    "Qwen3": QWEN_3,
    "Hermes": HERMES,
    "Llama 3": LLAMA_3,
    "Mistral": MISTRAL,
    "SmolLM3": SMOLLM_3,
    "Gemma 3": GEMMA_3,
    "Phi-4": PHI_4,
    "DeepSeek": DEEPSEEK,
    "gpt-oss": GPT_OSS,
    "Granite": GRANITE,
    "Qwen3-Coder": QWEN_3_CODER,
    "GLM-4.5": GLM_4,
}
