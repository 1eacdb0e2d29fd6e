"""A plain Llama in PyTorch, the Muon optimiser for its matrices, and its weights as files.

Weights are f32 while training, and are cast to bf16 where they are used, as they will be in the file; the residual
stream is f32.
"""

import math

import torch
import torch.nn.functional as F

from vocabulary import BOS, EOS, VOCAB_SIZE

SHAPE = {"n_layers": 7, "hidden": 320, "ffn": 896, "n_heads": 5, "head_dim": 64}
ROPE_THETA = 10000.0
EPS = 1e-5
MAX_POSITIONS = 512


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def rotate(x, cos, sin):
    """x [tokens, heads, head_dim]; cos, sin [tokens, 1, head_dim / 2]; halves, as Hugging Face stores them."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def attention_inputs(x, norm_weight, q, k, v, cos, sin, n_heads):
    """Residual [tokens, hidden] f32 -> q, k, v [tokens, heads, head_dim] bf16."""
    h = norm(x, norm_weight).bfloat16()
    heads = [F.linear(h, w.bfloat16()).unflatten(-1, (n_heads, -1)) for w in (q, k, v)]
    return rotate(heads[0], cos, sin), rotate(heads[1], cos, sin), heads[2]


def attention(q, k, v, rows, length):
    """Each row for itself, causally. q, k, v [rows * length, heads, head_dim] -> [rows * length, heads * head_dim].

    Kernels work on tiles of about 128 tokens, so short rows share one, with a mask that keeps them apart."""
    per_tile = 128 // length if length in (8, 16) else 1
    if rows % per_tile:
        per_tile = 1
    q, k, v = (t.unflatten(0, (rows // per_tile, per_tile * length)).transpose(1, 2) for t in (q, k, v))
    if per_tile == 1:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        at = torch.arange(per_tile * length, device=q.device)
        mask = (at[:, None] // length == at // length) & (at[:, None] >= at)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.transpose(1, 2).reshape(rows * length, -1)


def rest_of_layer(x, attended, o, norm_weight, gate, up, down):
    x = x + F.linear(attended, o.bfloat16())
    h = norm(x, norm_weight).bfloat16()
    h = F.silu(F.linear(h, gate.bfloat16())) * F.linear(h, up.bfloat16())
    return x + F.linear(h, down.bfloat16())


def logits_of(x, norm_weight, embedding):
    return F.linear(norm(x, norm_weight).bfloat16(), embedding.bfloat16()).float()


def loss_of(x, norm_weight, embedding, targets, weights):
    """Mean cross entropy over the tokens of weight 1, and how many of them were the likeliest."""
    logits = logits_of(x, norm_weight, embedding)
    losses = F.cross_entropy(logits, targets, reduction="none")
    total = weights.sum().clamp(min=1)
    right = ((logits.argmax(-1) == targets) * weights).sum() / total
    return (losses * weights).sum() / total, right


class Arith24(torch.nn.Module):
    def __init__(self, shape=None):
        super().__init__()
        self.shape = shape = shape or SHAPE
        hidden, ffn, inner = shape["hidden"], shape["ffn"], shape["n_heads"] * shape["head_dim"]

        def matrix(n_out, n_in, scale=1.0):
            return torch.nn.Parameter(torch.randn(n_out, n_in) * scale / math.sqrt(n_in))

        out_scale = 1 / math.sqrt(2 * shape["n_layers"])
        names = {
            "input_layernorm": lambda: torch.nn.Parameter(torch.ones(hidden)),
            "q": lambda: matrix(inner, hidden),
            "k": lambda: matrix(inner, hidden),
            "v": lambda: matrix(inner, hidden),
            "o": lambda: matrix(hidden, inner, out_scale),
            "post_attention_layernorm": lambda: torch.nn.Parameter(torch.ones(hidden)),
            "gate": lambda: matrix(ffn, hidden),
            "up": lambda: matrix(ffn, hidden),
            "down": lambda: matrix(hidden, ffn, out_scale),
        }
        self.layers = torch.nn.ModuleList(
            torch.nn.ParameterDict({name: make() for name, make in names.items()}) for _ in range(shape["n_layers"])
        )
        self.embedding = torch.nn.Parameter(torch.randn(VOCAB_SIZE, hidden) * 0.02)
        self.final_norm = torch.nn.Parameter(torch.ones(hidden))
        half = shape["head_dim"] // 2
        angles = torch.outer(torch.arange(MAX_POSITIONS), ROPE_THETA ** -(torch.arange(half) / half))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.compiled = False

    def compile(self):
        """Compiles what works token by token; attention alone knows rows, so batches of all shapes with the same
        number of tokens share the compiled parts. For training only: evaluations have other numbers of tokens."""
        self.parts = [torch.compile(part, dynamic=False) for part in (attention_inputs, rest_of_layer, loss_of)]
        self.compiled = True

    def parts_for(self, training):
        return self.parts if training and self.compiled else (attention_inputs, rest_of_layer, loss_of)

    def residual(self, ids, training=False):
        """ids [rows, length] -> [rows * length, hidden]"""
        inputs, rest, _ = self.parts_for(training)
        rows, length = ids.shape
        n_heads = self.shape["n_heads"]
        x = F.embedding(ids.reshape(-1), self.embedding)
        cos = self.cos[:length].repeat(rows, 1)[:, None]
        sin = self.sin[:length].repeat(rows, 1)[:, None]
        for layer in self.layers:
            qkv = inputs(x, layer["input_layernorm"], layer["q"], layer["k"], layer["v"], cos, sin, n_heads)
            attended = attention(*qkv, rows, length)
            x = rest(x, attended, layer["o"], layer["post_attention_layernorm"], layer["gate"], layer["up"],
                     layer["down"])  # fmt: skip
        return x

    def loss(self, symbols, weights):
        """Each symbol of weight 1 is to be told from those in front of it."""
        x = self.residual(symbols, training=True)
        targets = symbols.roll(-1, 1)
        weights = weights.float().roll(-1, 1)
        weights[:, -1] = 0
        return self.parts_for(True)[2](x, self.final_norm, self.embedding, targets.reshape(-1), weights.reshape(-1))

    @torch.no_grad()
    def logits_at(self, ids, positions):
        """ids [rows, length], positions [rows] -> [rows, vocab]: what follows there."""
        rows, length = ids.shape
        at = torch.arange(rows, device=ids.device) * length + positions
        return logits_of(self.residual(ids)[at], self.final_norm, self.embedding)

    def n_parameters(self):
        return sum(p.numel() for p in self.parameters())

    def tensors(self):
        """By Hugging Face's names, in bf16."""
        names = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
                 "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}  # fmt: skip
        found = {"model.embed_tokens.weight": self.embedding, "model.norm.weight": self.final_norm}
        for i, layer in enumerate(self.layers):
            for name, parameter in layer.items():
                found[f"model.layers.{i}.{names.get(name, name)}.weight"] = parameter
        return {name: p.detach().to("cpu", torch.bfloat16).contiguous() for name, p in found.items()}


def hf_config(s):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "hidden_act": "silu", "num_hidden_layers": s["n_layers"], "hidden_size": s["hidden"],
        "intermediate_size": s["ffn"], "num_attention_heads": s["n_heads"], "num_key_value_heads": s["n_heads"],
        "head_dim": s["head_dim"], "vocab_size": VOCAB_SIZE, "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": EPS, "rope_theta": ROPE_THETA, "rope_scaling": None, "attention_bias": False,
        "mlp_bias": False, "tie_word_embeddings": True, "bos_token_id": BOS, "eos_token_id": EOS,
    }  # fmt: skip


def orthogonalised(matrices, n_iterations=5):
    """The nearest (semi-)orthogonal matrices, roughly: Newton-Schulz with the quintic of the Muon optimiser (K. Jordan,
    2024). matrices [n, rows, columns]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(n_iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon:
    """Momentum, orthogonalised, for the matrices; each shape as one batch."""

    def __init__(self, parameters, momentum=0.95, weight_decay=0.05):
        self.groups = {}
        for p in parameters:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.buffers = {shape: torch.zeros(len(ps), *shape, device=ps[0].device) for shape, ps in self.groups.items()}
        self.momentum, self.weight_decay = momentum, weight_decay

    @torch.no_grad()
    def step(self, lr):
        for shape, parameters in self.groups.items():
            gradient = torch.stack([p.grad for p in parameters])
            buffer = self.buffers[shape]
            buffer.lerp_(gradient, 1 - self.momentum)
            update = orthogonalised(gradient.lerp(buffer, self.momentum))
            scale = lr * max(1.0, shape[0] / shape[1]) ** 0.5
            torch._foreach_mul_(parameters, 1 - lr * self.weight_decay)
            torch._foreach_add_(parameters, list(update.unbind(0)), alpha=-scale)
