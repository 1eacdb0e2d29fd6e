"""Makes tests/data/smollm2_golden.json from SmolLM2-135M-Instruct.Q4_1.gguf.

    pip install numpy gguf tokenizers
    python tools/golden_smollm2.py MODEL.gguf tests/data/smollm2_golden.json

For each prompt: its text and ids, the 20 largest logits of its last position as [[id, logit], …], and 64 greedy tokens
with the smallest gap between best and second-best logit on the way. Ids come from Hugging Face's `tokenizers`, with
SmolLM2's rules (each digit by itself, then GPT-2's split) written out here. Blocks are dequantised by their published
formulas. Everything is computed in float64; about three minutes on two cores.
"""

import json
import sys

import numpy as np
from gguf import GGUFReader, GGMLQuantizationType
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from llama_f64 import Llama

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "In 1969, 2 people walked on the Moon; 12 had by 1972. The 3rd",
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWrite one sentence about banyan trees.<|im_end|>\n<|im_start|>assistant\n",
    "Élise's café — “naïve” 你好 🌳\n\n\tAnd then",
]
N_TOP, N_GREEDY = 20, 64

NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def hf_name(name):
    fixed = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}  # fmt: skip
    if name in fixed:
        return fixed[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.{kind}"


def dequantise(tensor):
    shape = tuple(int(n) for n in reversed(tensor.shape))
    raw = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1)
    if tensor.tensor_type == GGMLQuantizationType.F32:
        return raw.view(np.float32).reshape(shape).astype(np.float64)
    if tensor.tensor_type == GGMLQuantizationType.Q8_0:
        blocks = raw.reshape(-1, 34)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float64)
        return (scale * blocks[:, 2:].view(np.int8)).reshape(shape)
    if tensor.tensor_type == GGMLQuantizationType.Q4_1:
        blocks = raw.reshape(-1, 20)
        scale, minimum = (blocks[:, i : i + 2].copy().view(np.float16).astype(np.float64) for i in (0, 2))
        quants = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
        return (scale * quants + minimum).reshape(shape)
    raise SystemExit(f"{tensor.name}: type {tensor.tensor_type.name} is not handled")


def half_split_order(w, n_heads):
    """GGUF keeps pair i of a head in rows 2i and 2i + 1; Hugging Face in rows i and i + head_dim / 2."""
    n_out, n_in = w.shape
    return w.reshape(n_heads, n_out // n_heads // 2, 2, n_in).swapaxes(1, 2).reshape(n_out, n_in)


def load_model(reader):
    def value(key):
        return reader.fields[key].contents()

    heads_q, heads_kv = value("llama.attention.head_count"), value("llama.attention.head_count_kv")
    config = {
        "n_layers": value("llama.block_count"),
        "n_heads_q": heads_q,
        "n_heads_kv": heads_kv,
        "head_dim": value("llama.embedding_length") // heads_q,
        "rms_eps": value("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": value("llama.rope.freq_base"),
    }
    weights = {}
    for tensor in reader.tensors:
        w = dequantise(tensor)
        if ".attn_q." in tensor.name:
            w = half_split_order(w, heads_q)
        if ".attn_k." in tensor.name:
            w = half_split_order(w, heads_kv)
        weights[hf_name(tensor.name)] = w
    return Llama(config, weights)


def load_tokenizer(reader):
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t, kind in zip(tokens, kinds) if kind == 3])
    return tokenizer


def main(model_path, out_path):
    reader = GGUFReader(model_path)
    model, tokenizer = load_model(reader), load_tokenizer(reader)
    golden = {"model": model_path.rsplit("/", 1)[-1], "prompts": []}
    for text in PROMPTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        model.reset()
        last = model.forward(ids)[-1]
        top = np.argsort(-last)[:N_TOP]
        greedy, gap, logits = [], np.inf, last
        for _ in range(N_GREEDY):
            second, best = np.sort(logits)[-2:]
            gap = min(gap, best - second)
            greedy.append(int(np.argmax(logits)))
            logits = model.forward(greedy[-1:])[-1]
        golden["prompts"].append({
            "text": text,
            "ids": ids,
            "top": [[int(i), float(last[i])] for i in top],
            "greedy": greedy,
            "min_gap": float(gap),
        })  # fmt: skip
        print(f"{len(ids)} ids, smallest gap {gap:.4f}: {tokenizer.decode(greedy)!r}", file=sys.stderr)
    with open(out_path, "w", encoding="utf-8") as out:
        json.dump(golden, out, ensure_ascii=False, indent=None, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
