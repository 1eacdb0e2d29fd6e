#!/usr/bin/env python3
"""Writes tests/data/smollm_tokens.json: texts with the ids that SmolLM2's tokenizer gives them.

Needs the PyPI packages `tokenizers`, `gguf` and `jinja2`:
    python3 tools/golden_smollm_tokens.py SmolLM2-135M-Instruct.Q4_1.gguf tests/data/smollm_tokens.json

The vocabulary and merges come from the GGUF file; the rules around them are written out here as the model's publisher
writes them in tokenizer.json: every digit by itself, then GPT-2's byte level. Special tokens are not parsed in `texts`, and
are in `chats`, whose text is the file's own chat template run by Jinja.
"""

import json
import sys

import jinja2
from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\n", " \n ", "\r\n", "Hello", " Hello", "  Hello", "Hello world",
    "Hello, world!", " Hello World!", "The quick brown fox jumps over the lazy dog.",
    "I've been told he's there, we'll see, you'd think, they're sure, I'm not, don't",
    "I'VE BEEN TOLD HE'S THERE, WE'LL SEE", "''s 't 're x's''ll",
    "3", "33", "1234567890", "3.14159", " 42", "a1b2c3", "1,000,000", "2024-05-17T12:34:56Z", "  7  8   9", "x = 10**9 + 7",
    "def f(n):\n    if n < 2:\n        return n\n    return f(n - 1) + f(n - 2)\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n",
    "import sys\n\n\ndef main():\n    data = sys.stdin.read().split()\n    print(sum(map(int, data)))\n\n\nmain()",
    "SELECT * FROM t WHERE a >= 3 AND b LIKE '%x%';", "<html><body class=\"a\">&nbsp;</body></html>",
    "{\"a\": [1, 2.5e-3, null], \"b\": \"\\u00e9\\n\"}", "https://example.org/a/b?c=d&e=%20#f", "C:\\Users\\x\\y.txt",
    "trailing space ", "trailing spaces   ", "line\n  next\n    deeper\n", "a\u00a0b\u2003c\u3000d\u2028e\u0085f",
    "\u180e a\u180eb \u200b c\ufeff", "a\u001cb\u001f c\u000bd\u000ce", "caf\u00e9 cafe\u0301 na\u00efve fa\u00e7ade",
    "\u00c4pfel \u00dcber Stra\u00dfe \u017fo", "\u041d\u0435\u0449\u043e \u043d\u0430 \u0431\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438",
    "\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3001\u30c6\u30b9\u30c8\u3002",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0661\u0662\u0663", "\u0939\u093f\u0928\u094d\u0926\u0940 \u0967\u0968\u0969",
    "\u17d1\u1781\u17d2\u1798\u17c2\u179a", "\u2460\u00bd\u00b2\u2167 \U0001d7d9\U0001d7da \u4e00\u4e8c",
    "\U0001f999.cpp \U0001f680 \U0001f636\u200d\U0001f32b\ufe0f \u2705 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u2014 \u201cquotes\u201d \u2026 \u20ac\u00a3\u00a5 \u00a9\u00ae\u2122", "\u2211_{i=1}^{n} \u221ax \u2264 \u221e \u2260 \u03c0", "!!!???...---===```",
    "<|im_start|>user\nhi<|im_end|>", "<|endoftext|>", "a" * 100, "ab" * 60 + "c", " " * 70, "=" * 65, "\n" * 40, "\u00e9" * 30,
    "Pneumonoultramicroscopicsilicovolcanoconiosis", "camelCaseIdentifierWithManyParts snake_case_identifier_with_parts",
    "\u0000\u0001\u007f", "\ud7ff\ue000\ufffd\U0010ffff",
]

CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}],
    [{"role": "user", "content": " spaces \n"}, {"role": "assistant", "content": "ok"}, {"role": "user", "content": ""}],
]


def read_metadata(path):
    return {key: field.contents() for key, field in GGUFReader(path).fields.items() if key.startswith("tokenizer.")}


def make_tokenizer(meta):
    pieces = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def main():
    source, target = sys.argv[1:]
    meta = read_metadata(source)
    assert meta["tokenizer.ggml.pre"] == "smollm"
    tokenizer = make_tokenizer(meta)
    texts = [{"text": text, "ids": tokenizer.encode(text).ids} for text in TEXTS]

    control = [i for i, kind in enumerate(meta["tokenizer.ggml.token_type"]) if kind == 3]
    tokenizer.add_special_tokens(
        [AddedToken(meta["tokenizer.ggml.tokens"][i], normalized=False, special=True) for i in control])
    template = jinja2.Environment().from_string(meta["tokenizer.chat_template"])
    chats = []
    for turns in CHATS:
        text = template.render(messages=turns, add_generation_prompt=True)
        chats.append({"turns": turns, "text": text, "ids": tokenizer.encode(text).ids})

    with open(target, "w", encoding="utf-8") as file:
        json.dump({"texts": texts, "chats": chats}, file, separators=(",", ":"))
        file.write("\n")


main()
