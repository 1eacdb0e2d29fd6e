"""Makes tests/data/parity.json: tiny random models of every family and rope type, and what transformers makes of them.

    pip install torch transformers gguf numpy
    python tools/make_parity_golden.py tests/data/parity.json

Each case has a config.json as such checkpoints have it (old and new key names), the names and shapes of the weights,
the GGUF form of both, a prompt, the logits of some of its positions, and greedy tokens behind it. Weights are not
stored: both sides draw them from the tensor's name with `draw`, in steps that bf16 holds exactly. transformers reads
the config.json by itself and computes in float64 (frequencies of rope in float32, as it always does).
"""

import json
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

N_PROMPT, N_GREEDY = 48, 64
LOGIT_POSITIONS = [0, 1, 17, 46, 47]
MIN_GAP = 2e-3  # between best and second-best logit on the greedy way: twenty times the tolerance
VOCAB = 96

# What differs from one case to the next stands on top of these.
BASE = {
    "hidden_act": "silu", "num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 80, "vocab_size": VOCAB,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
FAMILIES = {
    "llama": ("LlamaForCausalLM", "llama"), "mistral": ("MistralForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"), "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "smollm3": ("SmolLM3ForCausalLM", "smollm3"), "phi3": ("Phi3ForCausalLM", "phi3"),
}  # fmt: skip
# Contexts such that some of the few frequencies of a small head are kept, some blended, some stretched.
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
YARN = {"factor": 4.0, "original_max_position_embeddings": 1024}
LONG = {"short_factor": [1.0, 1.05, 1.1, 1.3, 1.7, 2.0], "long_factor": [1.0, 1.5, 3.0, 6.0, 12.0, 20.0]}

# name: (model_type, keys of config.json; None takes one away)
CASES = {
    "llama-1": ("llama", {"num_key_value_heads": None, "rope_theta": None, "rms_norm_eps": 1e-6}),
    "llama-2": ("llama", {"rope_theta": 10000.0, "rope_scaling": None, "pretraining_tp": 1}),
    "llama-3.1": ("llama", {"rope_theta": 500000.0, "rope_scaling": LLAMA3 | {"rope_type": "llama3"}}),
    "llama-3.2-tied": ("llama", {"head_dim": 16, "tie_word_embeddings": True,
                                 "rope_parameters": LLAMA3 | {"rope_type": "llama3", "rope_theta": 500000.0}}),
    "llama-linear": ("llama", {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama-yarn": ("llama", {"rope_theta": 10000.0, "rope_scaling": YARN | {"type": "yarn", "finetuned": True}}),
    "llama-yarn-factors": ("llama", {"head_dim": 16, "rope_parameters": YARN | {
        "rope_type": "yarn", "rope_theta": 10000.0, "attention_factor": 1.25, "beta_fast": 8.0, "beta_slow": 2.0}}),
    "llama-yarn-mscale": ("llama", {"head_dim": 16, "rope_parameters": YARN | {
        "rope_type": "yarn", "rope_theta": 10000.0, "mscale": 1.5, "mscale_all_dim": 0.5, "truncate": False}}),
    "llama-biases": ("llama", {"rope_theta": 10000.0, "attention_bias": True, "mlp_bias": True}),
    "codellama": ("llama", {"rope_theta": 1000000, "num_key_value_heads": 4}),
    "yi": ("llama", {"rope_theta": 5000000.0, "num_key_value_heads": 1}),
    "smollm2": ("llama", {"rope_theta": 100000, "num_attention_heads": 3, "num_key_value_heads": 1,
                          "tie_word_embeddings": True, "rope_interleaved": False}),
    "mistral": ("mistral", {"rope_theta": 1000000.0, "head_dim": 16, "sliding_window": None}),
    "qwen2.5": ("qwen2", {"rope_theta": 1000000.0, "tie_word_embeddings": True, "use_sliding_window": False,
                          "sliding_window": 64, "max_window_layers": 1}),
    "qwen2.5-yarn": ("qwen2", {"rope_theta": 1000000.0, "sliding_window": None, "use_sliding_window": False,
                               "rope_scaling": YARN | {"type": "yarn"}}),
    "qwen3": ("qwen3", {"rope_theta": 1000000, "head_dim": 24, "attention_bias": False, "use_sliding_window": False,
                        "sliding_window": None, "max_window_layers": 2, "rope_scaling": None}),
    "smollm3": ("smollm3", {"rope_theta": 5000000.0, "num_hidden_layers": 4, "tie_word_embeddings": None,
                            "pad_token_id": 1, "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0], "attention_bias": False,
                            "mlp_bias": False, "sliding_window": None, "use_sliding_window": False}),
    "smollm3-yarn": ("smollm3", {"num_hidden_layers": 4, "pad_token_id": 1, "tie_word_embeddings": False, "sliding_window": None,
                                 "rope_parameters": YARN | {"rope_type": "yarn", "rope_theta": 5000000.0}}),
    "phi-3": ("phi3", {"rope_theta": 10000.0, "rope_scaling": None, "sliding_window": 4096, "pad_token_id": 1,
                       "original_max_position_embeddings": 128}),
    "phi-4-mini": ("phi3", {"rope_theta": 10000.0, "hidden_size": 64, "partial_rotary_factor": 0.75, "pad_token_id": 1,
                            "tie_word_embeddings": True, "max_position_embeddings": 512, "sliding_window": 4096,
                            "original_max_position_embeddings": 128, "rope_scaling": LONG | {"type": "longrope"}}),
    "llama-reward": ("llama", {"rope_theta": 10000.0, "architectures": ["LlamaForSequenceClassification"],
                               "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "pad_token_id": 0}),
    "qwen2-reward": ("qwen2", {"rope_theta": 10000.0, "architectures": ["Qwen2ForSequenceClassification"],
                               "sliding_window": None, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
                               "pad_token_id": 0}),
}  # fmt: skip


def draw(name, shape):
    """Values from the name: FNV-1a of it starts a splitmix64 sequence. Norms are in [1/2, 3/2], others in +-27/64."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    n = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = np.uint64(state) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    if name.endswith("norm.weight"):
        values = 1.0 + ((z % np.uint64(33)).astype(np.int64) - 16) / 32
    else:
        values = ((z % np.uint64(55)).astype(np.int64) - 27) / 64
    return values.reshape(shape)


def config_json(model_type, keys):
    config = {"architectures": [FAMILIES[model_type][0]], "model_type": model_type} | BASE | keys
    if YARN.items() <= (config.get("rope_scaling") or config.get("rope_parameters") or {}).items():
        config["max_position_embeddings"] = 4096
    keep_null = {"rope_scaling", "sliding_window"}  # files do have them so
    return {k: v for k, v in config.items() if v is not None or k in keep_null and k in keys}


def load(config):
    """The model that transformers makes of this config.json, with our weights; and their names and shapes."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "config.json").write_text(json.dumps(config))
        parsed = transformers.AutoConfig.from_pretrained(directory)
    parsed._attn_implementation = "eager"
    model = getattr(transformers, config["architectures"][0])(parsed).double().eval()
    shapes = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # a tied head is not among them
            shapes[name] = list(parameter.shape)
            parameter.copy_(torch.from_numpy(draw(name, shapes[name])))
    return model, shapes


def gguf_form(config, shapes, model):
    """Metadata and tensor names of the same model in GGUF, with the names that the gguf package has for them."""
    arch = FAMILIES[config["model_type"]][1]
    arch_id = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(arch_id, config["num_hidden_layers"])
    rope = model.config.rope_parameters
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    keys = {
        "block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config.get("num_key_value_heads", config["num_attention_heads"]),
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "attention.key_length": head_dim,
        "attention.value_length": head_dim, "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1.0)), "vocab_size": VOCAB,
    }  # fmt: skip
    extra = {}
    rotary = model.model.rotary_emb
    kind = rope["rope_type"]
    if kind in ("linear", "yarn"):
        keys |= {"rope.scaling.type": kind, "rope.scaling.factor": rope["factor"]}
    if kind == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        keys |= {f"rope.scaling.yarn_{k}": rope[k] for k in ("beta_fast", "beta_slow") if k in rope}
        # The format's factor stands before 0.1 ln(factor) + 1.
        by_default = 0.1 * np.log(rope["factor"]) + 1
        if abs(rotary.attention_scaling - by_default) > 1e-9:
            keys["rope.scaling.attn_factor"] = rotary.attention_scaling / by_default
        if rope.get("truncate") is False:
            return None  # GGUF has no such key
    if kind == "llama3":
        plain = keys["rope.freq_base"] ** (-np.arange(0, head_dim, 2) / head_dim)
        extra["rope_freqs.weight"] = (plain / rotary.inv_freq.double().numpy()).tolist()
    if kind == "longrope":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        keys["rope.scaling.attn_factor"] = rotary.attention_scaling
        extra |= {"rope_factors_short.weight": rope["short_factor"], "rope_factors_long.weight": rope["long_factor"]}
    if config["model_type"] == "phi3":
        keys["attention.sliding_window"] = config["sliding_window"]
    tensors = {name: names.get_name(name, try_suffixes=(".weight", ".bias")) for name in shapes}
    interleaved = arch in ("llama", "smollm3")  # what the converters of llama.cpp permute
    return {"architecture": arch, "interleaved": interleaved, "keys": keys, "tensors": tensors, "extra": extra}


def rounded(values):
    return [round(float(x), 7) for x in values]


@torch.no_grad()
def make_case(name, model_type, keys):
    config = config_json(model_type, keys)
    model, shapes = load(config)
    rotary = model.model.rotary_emb
    case = {"name": name, "config": config, "shapes": shapes, "magnitude": float(rotary.attention_scaling)}
    rng = np.random.default_rng(20240207)
    is_reward = "SequenceClassification" in config["architectures"][0]
    for attempt in range(50):
        prompt = [int(i) for i in rng.integers(2, VOCAB, N_PROMPT)]
        ids = torch.tensor([prompt])
        if is_reward:
            # One number for each prefix of the prompt: the model gives that of the last position.
            rewards = [model(ids[:, : n + 1]).logits[0, 0] for n in range(N_PROMPT)]
            return case | {"prompt": prompt, "rewards": rounded(rewards)}
        logits = model(ids).logits[0]
        greedy, gap, last = [], np.inf, logits[-1]
        for _ in range(N_GREEDY):
            best = torch.topk(last, 2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            greedy.append(int(best.indices[0]))
            last = model(torch.tensor([prompt + greedy])).logits[0, -1]
        if gap >= MIN_GAP:
            break
    else:
        raise SystemExit(f"{name}: no prompt whose greedy way is clear")
    # A way that ends in a loop says little about positions far behind.
    print(f"{name}: gap {gap:.4f}, {len(set(greedy))} different tokens, attempt {attempt}", file=sys.stderr)
    return case | {
        "gguf": gguf_form(config, shapes, model),
        "prompt": prompt,
        "logits": {str(p): rounded(logits[p]) for p in LOGIT_POSITIONS},
        "greedy": greedy,
    }


def main(path):
    cases = [make_case(name, *case) for name, case in CASES.items()]
    made_with = f"transformers {transformers.__version__}, torch {torch.__version__}"
    with open(path, "w", encoding="utf-8") as out:
        out.write('{"made_with":' + json.dumps(made_with) + ',"cases":[\n')
        out.write(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
        out.write("\n]}\n")


if __name__ == "__main__":
    main(sys.argv[1])
