#!/usr/bin/env python3
"""Writes tests/data/chats.json: conversations as Jinja renders them in the families' templates.

Needs the PyPI package `jinja2`:
    python3 tools/golden_chats.py tests/data/chats.json [NAME=FILE.jinja…]

The templates below are the published ones reduced to system, user and assistant turns: the expressions that write turns are
the publishers', tools are left out. Jinja runs as Hugging Face's transformers run it. A template given as NAME=FILE is a
published one, whole: it is not written to the golden file, but must render every conversation as the reduced one does.
"""

import json
import sys

from jinja2.sandbox import ImmutableSandboxedEnvironment

ALTERNATE = "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns must alternate') }}{% endif %}"
CHATML_TURN = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
CHATML_END = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
TAKE_SYSTEM = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
"""


def chatml(system="", front=""):
    put_in = ""
    if system:
        put_in = ("{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" + system
                  + "<|im_end|>\\n' }}{% endif %}")
    return front + "{% for message in messages %}" + put_in + CHATML_TURN + "{% endfor %}" + CHATML_END


# NAME: (BOS, EOS, template)
TEMPLATES = {
    "chatml": ("<s>", "<|im_end|>", chatml()),
    "chatml-bos": ("<s>", "<|im_end|>", chatml(front="{{ bos_token }}")),
    "smollm2": ("<|im_start|>", "<|im_end|>",
                chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face")),
    "qwen1.5": (None, "<|im_end|>", chatml("You are a helpful assistant")),
    "qwen2": (None, "<|im_end|>", chatml("You are a helpful assistant.")),
    "qwen2.5": (None, "<|im_end|>", """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""),
    "qwen3": (None, "<|im_end|>", """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set thought = '' %}
        {%- if '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
            {%- set thought = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or thought) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""),
    "llama-2": ("<s>", "</s>", "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
                "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
                "{% set system_message = false %}{% endif %}{% for message in loop_messages %}" + ALTERNATE +
                "{% if loop.index0 == 0 and system_message != false %}"
                "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
                "{% else %}{% set content = message['content'] %}{% endif %}"
                "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
                "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}"
                "{% endfor %}"),
    "llama-3": ("<|begin_of_text|>", "<|eot_id|>", "{% for message in messages %}"
                "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
                "+ message['content'] | trim + '<|eot_id|>' %}"
                "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"),
    "llama-3.1": ("<|begin_of_text|>", "<|eot_id|>", """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{#- The system text, so that it doesn't come twice. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""),
    "mistral": ("<s>", "</s>", "{{ bos_token }}{% for message in messages %}" + ALTERNATE +
                "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
                "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% endif %}{% endfor %}"),
    "mistral-v0.1": ("<s>", "</s>", "{{ bos_token }}{% for message in messages %}" + ALTERNATE +
                     "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
                     "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}"
                     "{% endif %}{% endfor %}"),
    "mistral-v1": ("<s>", "</s>", TAKE_SYSTEM + """{{- bos_token }}
{%- for message in loop_messages %}
    """ + ALTERNATE.replace("{%", "{%-").replace("{{", "{{-") + """
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- ' [INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] + eos_token}}
    {%- endif %}
{%- endfor %}
"""),
    "mistral-v3": ("<s>", "</s>", TAKE_SYSTEM + """{{- bos_token }}
{%- for message in loop_messages %}
    """ + ALTERNATE.replace("{%", "{%-").replace("{{", "{{-") + """
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
"""),
    "zephyr": ("<s>", "</s>", """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""),
}


def turns(*contents):
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[c[0]], "content": c[1:]} for c in contents]


CHATS = [
    turns("uHello"),
    turns("sBe brief.", "u1 + 1?"),
    turns("uOne", "aTwo", "uThree"),
    turns("s You are\nterse. ", "u  white space \n", "a\n kept or not\t", "uAnd \"quotes\", {{ braces }}, <|marks|>", "a", "u"),
    turns("uWhy?", "a<think>\nhm\n</think>\n\nBecause.", "uSure?", "aYes</think>no", "uFine"),
    turns("uQ", "a<think>last</think>\nA"),
    turns("uQ", "aA"),
    turns("uQ", "aA", "u<tool_response>7</tool_response>", "a<think>t</think>B", "u<tool_response></tool_response>"),
    turns("u\u4f60\u597d \U0001f999"),
    turns("u\u3000\x1c wide\u00a0\x1f", "a\u2028\u200bzero width\x85", "u"),
]


def raise_exception(message):
    raise ValueError(message)


ENVIRONMENT = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
ENVIRONMENT.globals["raise_exception"] = raise_exception


def render(text, chat, bos, eos, **more):
    """The text, or None where the template raises."""
    try:
        return ENVIRONMENT.from_string(text).render(messages=chat, bos_token=bos or "", eos_token=eos,
                                                    add_generation_prompt=True, **more)
    except ValueError:
        return None


def main():
    for argument in sys.argv[2:]:
        name, path = argument.split("=", 1)
        bos, eos, reduced = TEMPLATES[name]
        with open(path, encoding="utf-8") as file:
            published = file.read()
        for chat in CHATS:
            whole, ours = render(published, chat, bos, eos), render(reduced, chat, bos, eos)
            # The oldest templates raise for a system turn, or ignore it; the reduced ones have no branch for it.
            if whole != ours and chat[0]["role"] != "system":
                sys.exit(f"{path} does not render as {name} here:\n{whole!r}\n{ours!r}")
    golden = []
    for name, (bos, eos, text) in TEMPLATES.items():
        variants = [(name, {})]
        if name == "qwen3":
            variants.append(("qwen3-no-thinking", {"enable_thinking": False}))
        for variant, more in variants:
            golden.append({"name": variant, "bos": bos, "eos": eos, "template": text if variant == name else None,
                           "chats": [{"turns": chat, "text": render(text, chat, bos, eos, **more)} for chat in CHATS]})
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
