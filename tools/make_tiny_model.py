"""Makes models/tiny: a random two-layer Llama for tests, as a Hugging Face directory and as GGUF, and what it computes.

    pip install numpy gguf safetensors tokenizers
    python tools/make_tiny_model.py models/tiny

    hf/          config.json, generation_config.json, tokenizer.json, tokenizer_config.json, model.safetensors
    tiny.gguf    the same weights and tokenizer
    golden.json  logits of every position of a prompt and greedy tokens after it, computed in float64

Weights are drawn from a fixed seed; file writing is that of the `gguf` and `safetensors` packages, so that banyan's
readers are tested against writers it does not share.
"""

import json
import os
import sys

import numpy as np
from gguf import GGUFWriter
from safetensors.numpy import save_file

from llama_f64 import Llama

CONFIG = {"n_layers": 2, "n_heads_q": 4, "n_heads_kv": 2, "head_dim": 8, "rms_eps": 1e-5, "rope_theta": 10000.0}
HIDDEN, INTERMEDIATE, VOCAB, CONTEXT = 32, 64, 64, 256
SEED = 20240207
BOS, EOS = 0, 1

# Byte-level BPE: specials, single characters in GPT-2's printable alphabet, then one piece per merge.
SPECIALS = ["<|bos|>", "<|eos|>"]
CHARACTERS = list("abcdefghijklmnopqrstuvwxyz0123456789") + ["Ġ", "Ċ", ".", ","]
MERGES = ["t h", "th e", "Ġ the", "i n", "a n", "e r", "o n", "Ġ a", "Ġ b", "an y", "Ġ s", "r e", "o r", "e n", "i t",
          "Ġa n", "an d", "Ġ and", "in g", "Ġ t", "Ġt o", "e s"]  # fmt: skip


def vocabulary():
    pieces = SPECIALS + CHARACTERS + [m.replace(" ", "") for m in MERGES]
    assert len(pieces) == len(set(pieces)) == VOCAB, len(pieces)
    return pieces


def make_weights():
    rng = np.random.default_rng(SEED)

    def matrix(n_out, n_in):
        # Three times the usual scale, so that attention is far from uniform and logits differ clearly.
        return (rng.standard_normal((n_out, n_in)) * 3 / np.sqrt(n_in)).astype(np.float32)

    q_dim, kv_dim = (CONFIG[n] * CONFIG["head_dim"] for n in ("n_heads_q", "n_heads_kv"))
    weights = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN)}
    for i in range(CONFIG["n_layers"]):
        p = f"model.layers.{i}."
        weights[p + "input_layernorm.weight"] = rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32)
        weights[p + "self_attn.q_proj.weight"] = matrix(q_dim, HIDDEN)
        weights[p + "self_attn.k_proj.weight"] = matrix(kv_dim, HIDDEN)
        weights[p + "self_attn.v_proj.weight"] = matrix(kv_dim, HIDDEN)
        weights[p + "self_attn.o_proj.weight"] = matrix(HIDDEN, q_dim)
        weights[p + "post_attention_layernorm.weight"] = rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32)
        weights[p + "mlp.gate_proj.weight"] = matrix(INTERMEDIATE, HIDDEN)
        weights[p + "mlp.up_proj.weight"] = matrix(INTERMEDIATE, HIDDEN)
        weights[p + "mlp.down_proj.weight"] = matrix(HIDDEN, INTERMEDIATE)
    weights["model.norm.weight"] = rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32)
    weights["lm_head.weight"] = matrix(VOCAB, HIDDEN)
    return weights


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, ensure_ascii=False, indent=1)
        out.write("\n")


def write_hf(directory, weights):
    os.makedirs(directory, exist_ok=True)
    save_file(weights, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
    write_json(os.path.join(directory, "config.json"), {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
        "num_hidden_layers": CONFIG["n_layers"], "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
        "num_attention_heads": CONFIG["n_heads_q"], "num_key_value_heads": CONFIG["n_heads_kv"],
        "vocab_size": VOCAB, "max_position_embeddings": CONTEXT, "rms_norm_eps": CONFIG["rms_eps"],
        "rope_theta": CONFIG["rope_theta"], "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": False, "bos_token_id": BOS, "eos_token_id": EOS,
    })  # fmt: skip
    write_json(os.path.join(directory, "generation_config.json"), {"bos_token_id": BOS, "eos_token_id": [EOS]})
    specials = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                 "special": True} for i, t in enumerate(SPECIALS)]  # fmt: skip
    write_json(os.path.join(directory, "tokenizer.json"), {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": specials, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {piece: i for i, piece in enumerate(vocabulary())}, "merges": MERGES},
    })  # fmt: skip
    write_json(os.path.join(directory, "tokenizer_config.json"), {
        "tokenizer_class": "GPT2Tokenizer", "bos_token": SPECIALS[BOS], "eos_token": SPECIALS[EOS],
        "add_bos_token": True, "model_max_length": CONTEXT,
    })  # fmt: skip


def interleaved_order(w, n_heads):
    """Row i + j * head_dim / 2 of a head goes to its row 2i + j: the order of q and k in GGUF."""
    n_out, n_in = w.shape
    return w.reshape(n_heads, 2, n_out // n_heads // 2, n_in).swapaxes(1, 2).reshape(n_out, n_in)


def write_gguf(path, weights):
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm"}  # fmt: skip
    out = GGUFWriter(path, "llama")
    out.add_name("tiny")
    out.add_block_count(CONFIG["n_layers"])
    out.add_context_length(CONTEXT)
    out.add_embedding_length(HIDDEN)
    out.add_feed_forward_length(INTERMEDIATE)
    out.add_head_count(CONFIG["n_heads_q"])
    out.add_head_count_kv(CONFIG["n_heads_kv"])
    out.add_layer_norm_rms_eps(CONFIG["rms_eps"])
    out.add_rope_freq_base(CONFIG["rope_theta"])
    out.add_rope_dimension_count(CONFIG["head_dim"])
    out.add_vocab_size(VOCAB)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(vocabulary())
    out.add_token_types([3] * len(SPECIALS) + [1] * (VOCAB - len(SPECIALS)))
    out.add_token_merges(MERGES)
    out.add_bos_token_id(BOS)
    out.add_eos_token_id(EOS)
    out.add_add_bos_token(True)
    out.add_add_space_prefix(False)
    for name, w in weights.items():
        if name.startswith("model.layers."):
            _, _, layer, part = name.removesuffix(".weight").split(".", 3)
            if part.endswith(("q_proj", "k_proj")):
                w = interleaved_order(w, CONFIG["n_heads_q" if part.endswith("q_proj") else "n_heads_kv"])
            out.add_tensor(f"blk.{layer}.{names[part]}.weight", w)
        else:
            fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                     "lm_head.weight": "output.weight"}  # fmt: skip
            out.add_tensor(fixed[name], w)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def write_golden(path, weights):
    model = Llama(CONFIG, weights)
    prompt = [int(i) for i in np.random.default_rng(SEED + 1).integers(2, VOCAB, 24)]
    logits = model.forward(prompt)
    golden = {"prompt": prompt, "logits": [[round(float(x), 9) for x in row] for row in logits],
              "greedy": model.greedy(logits[-1], 32)}  # fmt: skip
    with open(path, "w", encoding="utf-8") as out:
        json.dump(golden, out, separators=(",", ":"))
        out.write("\n")


def main(directory):
    weights = make_weights()
    write_hf(os.path.join(directory, "hf"), weights)
    write_gguf(os.path.join(directory, "tiny.gguf"), weights)
    write_golden(os.path.join(directory, "golden.json"), weights)


if __name__ == "__main__":
    main(sys.argv[1])
