"""A Llama forward pass in numpy float64 with a KV cache: the oracle that the golden files are made with.

Written from the published formulas, independent of banyan's C++: no batching over sequences, no sharing, no merge.
Weights are in Hugging Face's names and row order, whatever file they came from.
"""

import numpy as np


class Llama:
    """weights: name -> array; config: n_layers, n_heads_q, n_heads_kv, head_dim, rms_eps, rope_theta."""

    def __init__(self, config, weights):
        self.config = config
        self.w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
        self.head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        half = config["head_dim"] // 2
        self.inv_freq = config["rope_theta"] ** (-np.arange(half) / half)
        self.reset()

    def reset(self):
        self.cache = [(None, None)] * self.config["n_layers"]
        self.n_past = 0

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config["rms_eps"]) * self.w[name]

    def rope(self, x, positions):
        """x [n, heads, head_dim]: pairs (i, i + head_dim / 2) turned by positions * inv_freq[i]."""
        angle = positions[:, None, None] * self.inv_freq
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)

    def attention(self, x, i, positions):
        c = self.config
        prefix = f"model.layers.{i}.self_attn."
        q, k, v = (
            (x @ self.w[f"{prefix}{p}_proj.weight"].T).reshape(len(x), heads, c["head_dim"])
            for p, heads in (("q", c["n_heads_q"]), ("k", c["n_heads_kv"]), ("v", c["n_heads_kv"]))
        )
        q, k = self.rope(q, positions), self.rope(k, positions)
        if self.n_past:
            k, v = (np.concatenate([old, new]) for old, new in zip(self.cache[i], (k, v)))
        self.cache[i] = (k, v)
        visible = np.arange(len(k))[None, :] <= positions[:, None]
        out = np.empty_like(q)
        for head in range(c["n_heads_q"]):
            kv_head = head // (c["n_heads_q"] // c["n_heads_kv"])
            scores = q[:, head] @ k[:, kv_head].T / np.sqrt(c["head_dim"])
            scores = np.where(visible, scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ v[:, kv_head]
        return out.reshape(len(x), -1) @ self.w[f"{prefix}o_proj.weight"].T

    def ffn(self, x, i):
        gate, up, down = (self.w[f"model.layers.{i}.mlp.{p}_proj.weight"] for p in ("gate", "up", "down"))
        g = x @ gate.T
        return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T

    def forward(self, ids):
        """Logits [len(ids), vocab_size] of the tokens, which follow those of earlier calls."""
        positions = self.n_past + np.arange(len(ids))
        x = self.w["model.embed_tokens.weight"][ids]
        for i in range(self.config["n_layers"]):
            x = x + self.attention(self.norm(x, f"model.layers.{i}.input_layernorm.weight"), i, positions)
            x = x + self.ffn(self.norm(x, f"model.layers.{i}.post_attention_layernorm.weight"), i)
        self.n_past += len(ids)
        return self.norm(x, "model.norm.weight") @ self.head.T

    def greedy(self, logits, n):
        """n likeliest tokens one after the other, given the last logits; end of text does not stop it."""
        ids = []
        for _ in range(n):
            ids.append(int(np.argmax(logits)))
            logits = self.forward(ids[-1:])[-1]
        return ids
