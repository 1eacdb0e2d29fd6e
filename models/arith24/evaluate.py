"""What a checkpoint can do on puzzles it has not seen. For the log of a training run; the figures that are reported are
measured with banyan's own searches."""

import re
from fractions import Fraction

import torch

import generate
import rules
from rules import TARGET
from vocabulary import BOS, EOS, ids_of, text_of, word


def value_accuracy(model, state):
    """Share right of the states whose value is sure, of the others, and of all."""
    out, sure = generate.value_documents(state, TARGET)
    symbols, weights, _ = out.rows(16)
    answer_at = weights.int().argmax(1)
    answers = []
    for begin in range(0, symbols.shape[0], 4096):
        part = slice(begin, begin + 4096)
        logits = model.logits_at(symbols[part].long(), answer_at[part] - 1)
        answers.append(logits[:, word("sure")] > logits[:, word("impossible")])
    right = torch.cat(answers) == sure
    share = lambda mask: right[mask].float().mean().item()  # noqa: E731
    return {"sure": share(sure), "impossible": share(~sure), "all": right.float().mean().item(), "n": len(right),
            "share_impossible": (~sure).float().mean().item()}  # fmt: skip


@torch.no_grad()
def write_on(model, prompts, max_symbols, length, device):
    """Greedy continuations of lists of symbols, without a cache: short texts, many at a time."""
    ids = torch.full((len(prompts), length), EOS, device=device)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt, device=device)
    ends = torch.tensor([len(prompt) for prompt in prompts], device=device)
    begins, rows = ends.tolist(), torch.arange(len(prompts), device=device)
    done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    for _ in range(max_symbols):
        token = model.logits_at(ids, ends - 1).argmax(-1)
        done |= (token == EOS) | (ends >= length - 1)
        if done.all():
            break
        ids[rows[~done], ends[~done]] = token[~done]
        ends += ~done
    return [ids[row, begins[row] : end].tolist() for row, end in enumerate(ends.tolist())]


MOVE = re.compile(r"^ (\S+) ([-+*/]) (\S+) = (\S+)(?: left (.*))?$")


def after_move(numbers, line):
    """What is left of `numbers` (sorted Fractions) after a line of the model's; None where the line is wrong."""
    match = MOVE.match(line)
    if not match:
        return None
    try:
        x, y, result = Fraction(match[1]), Fraction(match[3]), Fraction(match[4])
        truth = {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "/": lambda: x / y}[match[2]]()
        left = list(numbers)
        left.remove(x)
        left.remove(y)
    except (ValueError, ZeroDivisionError):
        return None
    if truth != result:
        return None
    left = sorted([*left, result])
    if match[5] is not None and match[5].split() != [str(number) for number in left]:
        return None
    return left


def is_solution(numbers, text):
    state = sorted(numbers)
    for line in text.splitlines():
        state = after_move(state, line)
        if state is None:
            return False
    return state == [TARGET]


def shown(numbers):
    return " ".join(str(number) for number in numbers)


def solve_accuracy(model, hands, device):
    prompts = [[BOS, *ids_of(f"{shown(hand)} to {TARGET} solve\n")] for hand in hands]
    written = write_on(model, prompts, 46, 64, device)
    n_right = sum(is_solution([Fraction(n) for n in hand], text_of(ids)) for hand, ids in zip(hands, written))
    return {"solved": n_right / len(hands), "tokens": sum(map(len, written)) / len(hands),
            "examples": [text_of(ids) for ids in written[:4]]}  # fmt: skip


def tree_search(model, hands, width, device):
    """Breadth-first, all puzzles level by level: the model lists the moves, judges what they leave, `width` stay."""
    frontier = {i: [[Fraction(n) for n in hand]] for i, hand in enumerate(hands)}
    n_tokens = n_lines = n_wrong = 0
    solved = set()
    for length, max_symbols in ((256, 248), (128, 120), (64, 56)):
        places = [(i, state) for i, states in frontier.items() for state in states]
        prompts = [[BOS, *ids_of(f"{shown(state)} moves\n")] for _, state in places]
        children = {i: {} for i in frontier}
        for begin in range(0, len(prompts), 512):
            for (i, state), ids in zip(places[begin:], write_on(model, prompts[begin : begin + 512], max_symbols, length,
                                                                device)):  # fmt: skip
                n_tokens += len(ids)
                for line in text_of(ids).splitlines():
                    child = after_move(state, line)
                    n_lines, n_wrong = n_lines + 1, n_wrong + (child is None)
                    if child is not None and all(x.numerator <= rules.MAX_N and x.denominator <= rules.MAX_D
                                                 for x in child):  # fmt: skip
                        children[i][tuple(child)] = None
        flat = [(i, child) for i, found in children.items() for child in found]
        n_tokens += len(flat)
        prompts = [[BOS, *ids_of(f"{shown(child)} to {TARGET} value")] for _, child in flat]
        values = []
        for begin in range(0, len(prompts), 2048):
            part = prompts[begin : begin + 2048]
            ids = torch.full((len(part), 16), EOS, device=device)
            for row, prompt in enumerate(part):
                ids[row, : len(prompt)] = torch.tensor(prompt, device=device)
            logits = model.logits_at(ids, torch.tensor([len(prompt) - 1 for prompt in part], device=device))
            values += (logits[:, word("sure")] - logits[:, word("impossible")]).tolist()
        ranked = sorted(zip(values, range(len(flat))), key=lambda pair: (-pair[0], pair[1]))
        frontier = {i: [] for i in frontier}
        for _, at in ranked:
            i, child = flat[at]
            if len(frontier[i]) < width:
                frontier[i].append(list(child))
                if child == (TARGET,):
                    solved.add(i)
    return {"width": width, "solved": len(solved) / len(hands), "tokens": n_tokens / len(hands), "lines": n_lines,
            "wrong_lines": n_wrong}  # fmt: skip
