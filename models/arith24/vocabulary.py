"""The symbols: one for each number from 0 to 999, one for each denominator, a few words. Also a tokenizer.model.

A number p/q is two symbols, "▁p" and "/q". In a text every symbol but the end of a line has its space in front, so a
line looks like " 8 - 4 = 4 left 4 6 12".
"""

import numpy as np

from rules import MAX_D, MAX_N

UNK, BOS, EOS, NEWLINE = 0, 1, 2, 3
WORDS = ["+", "-", "*", "/", "=", "left", "to", "solve", "moves", "value", "sure", "impossible"]
WORD_IDS = {word: 4 + i for i, word in enumerate(WORDS)}
NUMBER_0 = 4 + len(WORDS)
DENOMINATOR_2 = NUMBER_0 + MAX_N + 1
CHARACTER_0 = DENOMINATOR_2 + MAX_D - 1
CHARACTERS = ["\u2581"] + [chr(c) for c in range(0x21, 0x7F)]  # so that any ASCII text has a spelling
VOCAB_SIZE = (CHARACTER_0 + len(CHARACTERS) + 63) // 64 * 64


def word(text):
    return WORD_IDS[text]


def pieces():
    """[(piece, type)], the types as numbered in sentencepiece_model.proto."""
    normal, unknown, control, user_defined, unused = 1, 2, 3, 4, 5
    table = [("<unk>", unknown), ("<s>", control), ("</s>", control), ("\n", user_defined)]
    table += [("\u2581" + w, user_defined) for w in WORDS]
    table += [(f"\u2581{n}", user_defined) for n in range(MAX_N + 1)]
    table += [(f"/{d}", user_defined) for d in range(2, MAX_D + 1)]
    table += [(c, normal) for c in CHARACTERS]
    table += [(f"<unused{i}>", unused) for i in range(VOCAB_SIZE - len(table))]
    return table


def text_of(ids):
    table = pieces()
    return "".join(table[i][0] for i in ids if i > EOS).replace("\u2581", " ")


def ids_of(text):
    """Ids of a text of this model's own forms (not of any text: that is the tokenizer's work)."""
    ids = []
    for line in text.splitlines(keepends=True):
        for item in line.split():
            if item in WORD_IDS:
                ids.append(WORD_IDS[item])
                continue
            n, _, d = item.partition("/")
            ids.append(NUMBER_0 + int(n))
            if d:
                ids.append(DENOMINATOR_2 + int(d) - 2)
        if line.endswith("\n"):
            ids.append(NEWLINE)
    return ids


# --- the few fields of sentencepiece's ModelProto that a BPE model needs, by their published numbers ------------------


def _varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field, value):
    return _varint(field << 3) + _varint(value)


def _bytes(field, value):
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field, value):
    return _varint(field << 3 | 5) + np.float32(value).tobytes()


def tokenizer_model():
    model = b""
    for i, (piece, kind) in enumerate(pieces()):
        message = _bytes(1, piece.encode()) + _float(2, 0.0 if kind != 1 else -float(i)) + _number(3, kind)
        model += _bytes(1, message)
    bpe = 2
    trainer = _number(3, bpe) + _number(4, VOCAB_SIZE) + _number(40, UNK) + _number(41, BOS) + _number(42, EOS)
    pad_none = _varint(43 << 3) + _varint((1 << 64) - 1)
    normalizer = _bytes(1, b"identity") + _number(3, 1) + _number(4, 0) + _number(5, 1)
    return model + _bytes(2, trainer + pad_none) + _bytes(3, normalizer)
