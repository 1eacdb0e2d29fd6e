"""Trains the model in one run on one GPU, with a hard limit of time.

    python3 models/arith24/train.py --puzzles 24.csv --out DIR --minutes 8

Writes to DIR, safe at any moment: log.jsonl, final-1.safetensors and final-2.safetensors (rewritten every minute: two
files, each under 16 MiB), weak-1 and weak-2 (once, after --weak-at seconds of training). export.py makes model
directories of them.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time

START = time.monotonic()
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

import audit  # noqa: E402
import evaluate  # noqa: E402
import generate  # noqa: E402
import rules  # noqa: E402
from model import SHAPE, Arith24, Muon  # noqa: E402

MUON_RATE, ADAM_RATE = 0.02, 2e-3
# Share of the documents of a batch of values that come of each table; sure ones are drawn to be this part of each.
VALUE_MIX = {"core": 0.25, "wide": 0.1, "backward": 0.2, "two": 0.06, "one": 0.01, "other": 0.03, "targets": 0.35}
SURE_SHARE = 0.4
# The same for solutions of the game.
SOLVE_MIX = {"choice": 0.35, "rest": 0.1, "three": 0.25, "targets": 0.3}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--puzzles", default=os.path.join(HERE, "../../../shared/data/game24/24.csv"))
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--weak-at", type=float, default=35, help="seconds of training")
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=49152, help="of a batch of one form; a multiple of 768")
    parser.add_argument("--scale", type=int, default=1, help="makes so many times fewer documents")
    parser.add_argument("--tiny", action="store_true", help="a small network, not compiled: to try the script on a CPU")
    return parser.parse_args()


class Log:
    def __init__(self, folder):
        self.file = open(os.path.join(folder, "log.jsonl"), "w", encoding="utf-8")

    def __call__(self, **row):
        line = json.dumps({"at_s": round(time.monotonic() - START, 1), **row})
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()


def save(model, folder, name):
    tensors = list(model.tensors().items())
    total, so_far, parts = sum(t.numel() for _, t in tensors), 0, ({}, {})
    for key, tensor in tensors:
        parts[so_far * 2 > total][key] = tensor
        so_far += tensor.numel()
    with tempfile.TemporaryDirectory() as scratch:
        for i, part in enumerate(parts, 1):
            file = f"{name}-{i}.safetensors"
            save_file(part, os.path.join(scratch, file), metadata={"shape": json.dumps(model.shape)})
            shutil.copyfile(os.path.join(scratch, file), os.path.join(folder, file))


def shares(mix, n):
    """n divided as the mix says; the last takes what is left."""
    counts = {name: int(n * share) for name, share in mix.items()}
    last = list(mix)[-1]
    counts[last] += n - sum(counts.values())
    return counts


def concat(batches):
    return [torch.cat(parts) for parts in zip(*batches)]


def draw_values(tables, length, n):
    filled = {key for key, table in tables.items() if len(table.symbols)}
    mix = {name: share for name, share in VALUE_MIX.items() if (name, "sure", length) in filled}
    total = sum(mix.values())
    batches = []
    for name, count in shares({name: share / total for name, share in mix.items()}, n).items():
        n_sure = int(count * SURE_SHARE)
        batches += [tables[name, "sure", length].draw(n_sure), tables[name, "impossible", length].draw(count - n_sure)]
    return concat(batches)


class Data:
    """The tables of all forms. A training step takes a batch of values, one of solutions of the game itself, and one of
    the others by turns."""

    TURNS = ("long values", "countdown", "long values", "four moves", "long values", "solve", "long values",
             "three moves")  # fmt: skip

    def __init__(self, scale, excluded, device, n_tokens):
        self.n_tokens = n_tokens
        self.values = generate.value_tables(scale, excluded, device)
        self.solutions = generate.solution_tables(scale, excluded, device)
        four, three = generate.moves_tables(scale, excluded, device)
        self.others = {"four moves": four, "three moves": three, "countdown": self.solutions.pop("countdown")}

    def audit(self, excluded, log):
        """No document that is trained on holds a state that it must not."""
        tables = {" ".join(map(str, key)): table for key, table in self.values.items()}
        tables |= {"solve " + name: table for name, table in self.solutions.items()} | self.others
        for name, table in tables.items():
            if not len(table.symbols):
                continue
            n_states, n_excluded = audit.count_excluded(table.symbols, excluded)
            log(event="audit", table=name, documents=len(table.symbols), states=n_states, excluded=n_excluded)
            if n_excluded:
                raise RuntimeError(f"{name}: {n_excluded} excluded states")

    def batches(self, step):
        for name in ("value", "solve", self.TURNS[step % len(self.TURNS)]):
            yield name, *self.batch(name)

    def batch(self, name):
        if name in ("value", "long values"):
            length = 8 if name == "value" else 16
            return draw_values(self.values, length, self.n_tokens // length)
        if name == "solve":
            counts = shares(SOLVE_MIX, self.n_tokens // 48)
            return concat([self.solutions[part].draw(n) for part, n in counts.items()])
        table = self.others[name]
        return table.draw(self.n_tokens // table.length)


class Trainer:
    def __init__(self, model, data):
        self.model, self.data = model, data
        matrices = [p for layer in model.layers for p in layer.values() if p.ndim == 2]
        others = [p for layer in model.layers for p in layer.values() if p.ndim == 1] + [model.final_norm]
        self.muon = Muon(matrices)
        groups = [{"params": [model.embedding], "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        self.adam = torch.optim.AdamW(groups, lr=ADAM_RATE, betas=(0.9, 0.95))
        self.step_number, self.n_tokens = 0, 0

    def step(self, progress):
        """One step; `progress` is the share of the time that is gone."""
        warm = min(1.0, (self.step_number + 1) / 100)
        rate = warm * (1.0 if progress < 0.4 else max(0.02, (1 - progress) / 0.6))
        report = {}
        for name, symbols, weights in self.data.batches(self.step_number):
            loss, right = self.model.loss(symbols, weights)
            loss.backward()
            report[name] = (loss.detach(), right.detach())
            self.n_tokens += symbols.numel()
        for group in self.adam.param_groups:
            group["lr"] = ADAM_RATE * rate
        self.muon.step(MUON_RATE * rate)
        self.adam.step()
        self.model.zero_grad(set_to_none=True)
        self.step_number += 1
        return report


def main():
    args = arguments()
    os.makedirs(args.out, exist_ok=True)
    log = Log(args.out)
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    deadline = START + 60 * args.minutes
    stop = deadline - min(30, 6 * args.minutes)  # the rest is for the last evaluation

    puzzles = rules.read_puzzles(args.puzzles)
    excluded_here = rules.Excluded(puzzles)
    excluded = excluded_here.on(device)
    held_out = generate.states_of_keys(excluded.threes, 3)
    log(event="start", device=torch.cuda.get_device_name() if device == "cuda" else "cpu", torch=torch.__version__,
        seed=args.seed, tokens=args.tokens, scale=args.scale, minutes=args.minutes, puzzles=len(puzzles),
        excluded_threes=len(excluded.threes))  # fmt: skip

    data = Data(args.scale, excluded, device, args.tokens)
    data.audit(excluded, log)
    if device == "cuda":
        torch.cuda.empty_cache()
    shape = {"n_layers": 2, "hidden": 64, "ffn": 128, "n_heads": 2, "head_dim": 32} if args.tiny else SHAPE
    model = Arith24(shape).to(device)
    if not args.tiny:
        model.compile()
    trainer = Trainer(model, data)
    log(event="model", parameters=model.n_parameters(), shape=shape)

    def check():
        return {"value": evaluate.value_accuracy(model, held_out),
                "solve_801_900": evaluate.solve_accuracy(model, puzzles[800:900].tolist(), device)}  # fmt: skip

    try:
        trainer.step(0.0)  # compiles
    except Exception as error:  # slower, but a run on a lent machine is not to be lost to a compiler
        log(event="not compiled", error=repr(error)[:500])
        model.compiled = False
        trainer.step(0.0)
    if device == "cuda":
        torch.cuda.synchronize()
    begin = last_log = last_save = time.monotonic()
    log(event="compiled")
    weak_saved = False
    while (now := time.monotonic()) < stop:
        report = trainer.step((now - begin) / (stop - begin))
        if trainer.step_number % 100 == 0 or args.tiny:
            row = {name: [round(x.item(), 4) for x in pair] for name, pair in report.items()}
            log(event="step", step=trainer.step_number, tokens=trainer.n_tokens, **row)
        if not weak_saved and now - begin > args.weak_at:
            save(model, args.out, "weak")
            log(event="weak", step=trainer.step_number, tokens=trainer.n_tokens, **check())
            weak_saved = True
        if now - last_log > 30:
            log(event="check", step=trainer.step_number, tokens=trainer.n_tokens, **check())
            last_log = now
        if now - last_save > 60:
            save(model, args.out, "final")
            last_save = now
    save(model, args.out, "final")
    log(event="end", step=trainer.step_number, tokens=trainer.n_tokens, train_s=round(time.monotonic() - begin, 1))
    final_report(model, puzzles, held_out, device, log, deadline)


def final_report(model, puzzles, held_out, device, log, deadline):
    """Each line as long as there is time."""
    test, tuning = puzzles[900:1000].tolist(), puzzles[800:900].tolist()
    jobs = [
        ("value_held_out", lambda: evaluate.value_accuracy(model, held_out)),
        ("solve_801_900", lambda: evaluate.solve_accuracy(model, tuning, device)),
        ("solve_901_1000", lambda: evaluate.solve_accuracy(model, test, device)),
        ("tree_801_900_b1", lambda: evaluate.tree_search(model, tuning, 1, device)),
        ("tree_901_1000_b1", lambda: evaluate.tree_search(model, test, 1, device)),
        ("tree_901_1000_b5", lambda: evaluate.tree_search(model, test, 5, device)),
    ]
    for name, job in jobs:
        if time.monotonic() < deadline - 5:
            log(event="final", what=name, **job())


if __name__ == "__main__":
    main()
