"""The arithmetic of the game: exact rationals, moves, what can be reached, and what training must never see.

A number is a pair (n, d) of integer arrays, n/d >= 0 in lowest terms wherever it is written down. A state of k numbers
is a pair of arrays [N, k], sorted by value. A move takes two numbers x <= y of it and puts back one of x + y, y - x,
x * y, y / x, x / y. Differences the other way round are not needed: a sign can be carried through to the end, so what
can be reached with them can be reached without.

The functions work on NumPy arrays and on torch tensors alike: training makes its data on the GPU, tests run on NumPy.
"""

import csv
import itertools

import numpy as np

TARGET = 24
MAX_N, MAX_D = 999, 99  # numbers that have a symbol; a move to another number is no move
OPS = ("+", "-", "*", "/", "/")  # the last is x / y


def lib(array):
    """numpy or torch, whichever the array is of."""
    if isinstance(array, np.ndarray):
        return np
    import torch

    return torch


def pairs_of(k):
    return list(itertools.combinations(range(k), 2))


def column(state, i):
    return state[0][:, i], state[1][:, i]


def results(x, y):
    """The five results of x <= y as [(n, d, defined)], not reduced."""
    (xn, xd), (yn, yd) = x, y
    a, b, d = xn * yd, yn * xd, xd * yd
    always = d > 0
    return [
        (a + b, d, always),
        (b - a, d, always),
        (xn * yn, d, always),
        (yn * xd, yd * xn, xn > 0),
        (xn * yd, xd * yn, yn > 0),
    ]


def reaches_from_two(x, y, target):
    (xn, xd), (yn, yd) = x, y
    a, b, d = xn * yd, yn * xd, xd * yd
    t = target * d
    by_division = ((a == target * b) & (b > 0)) | ((b == target * a) & (a > 0))
    return (a + b == t) | (abs(a - b) == t) | (xn * yn == t) | by_division


def solvable(numbers, target):
    """numbers: list of (n, d), in any order and not reduced. True where some sequence of moves ends at target > 0."""
    if len(numbers) == 1:
        n, d = numbers[0]
        return n == target * d
    if len(numbers) == 2:
        return reaches_from_two(*numbers, target)
    found = None
    for i, j in pairs_of(len(numbers)):
        rest = [number for k, number in enumerate(numbers) if k not in (i, j)]
        x, y = numbers[i], numbers[j]
        for n, d, defined in results(x, y):
            # In any order: y - x may come out negative.
            safe_d = d + (d == 0)
            reached = solvable([(abs(n), safe_d), *rest], target) & defined
            found = reached if found is None else found | reached
    return found


def solvable_state(state, target=TARGET):
    return solvable([column(state, i) for i in range(state[0].shape[1])], target)


def sort_state(n, d):
    xp = lib(n)
    order = xp.argsort(n / d, **({"kind": "stable"} if xp is np else {"dim": 1, "stable": True}))
    if xp is np:
        return np.take_along_axis(n, order, 1), np.take_along_axis(d, order, 1)
    return n.gather(1, order), d.gather(1, order)


def stack(columns):
    xp = lib(columns[0])
    return xp.stack(columns, 1)


def moves(state):
    """All moves of states of k >= 2 numbers, in the order in which they are listed: pairs by place, then OPS.

    Returns a list of (x, y, op, result, child, legal): x, y, result are (n, d) of shape [N], child a state of k - 1
    numbers. legal is False where the result is undefined, has no symbol, or the child came up before.
    """
    k = state[0].shape[1]
    found, keys = [], []
    for i, j in pairs_of(k):
        x, y = column(state, i), column(state, j)
        rest = [m for m in range(k) if m not in (i, j)]
        for op, (n, d, defined) in enumerate(results(x, y)):
            n, d = reduce(n, d + (d == 0))
            legal = defined & (n <= MAX_N) & (d <= MAX_D)
            n, d = n * legal, d * legal + ~legal
            child = sort_state(stack([state[0][:, m] for m in rest] + [n]), stack([state[1][:, m] for m in rest] + [d]))
            key = state_key(child)
            for other, other_legal in keys:
                legal = legal & ~((key == other) & other_legal)
            keys.append((key, legal))
            pair = (y, x) if op in (1, 3) else (x, y)
            found.append((*pair, op, (n, d), child, legal))
    return found


def reduce(n, d):
    g = lib(n).gcd(n, d)
    g = g + (g == 0)
    return n // g, d // g


def state_key(state):
    """One integer for a state of at most three numbers; of larger ones a hash (63 bits are enough to tell children
    of one state apart)."""
    n, d = state
    key = n[:, 0] * 0
    for i in range(n.shape[1]):
        key = key * (1 << 20) + n[:, i] * (MAX_D + 1) + d[:, i]
    return key


def isin(values, sorted_values):
    return lib(values).isin(values, sorted_values)


# --- what training must not see ---------------------------------------------------------------------------------------


def read_puzzles(path):
    """The hands of 24.csv in its order: [1362, 4], sorted."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = [[int(number) for number in row["Puzzles"].split()] for row in csv.DictReader(file)]
    return np.sort(np.array(rows, dtype=np.int64), 1)


def whole(hands):
    """Integers as a state."""
    return hands, hands * 0 + 1


class Excluded:
    """The solvable hands of four numbers from 1 to 13 (the 1,362 of 24.csv), and all states of three numbers that a
    move makes of puzzles 901 to 1000."""

    def __init__(self, puzzles):
        self.hands = np.unique(hand_code(puzzles))
        below = [state_key(child)[legal] for *_, child, legal in moves(whole(puzzles[900:1000]))]
        self.threes = np.unique(np.concatenate(below))

    def on(self, device):
        import torch

        other = object.__new__(Excluded)
        other.hands = torch.from_numpy(self.hands).to(device)
        other.threes = torch.from_numpy(self.threes).to(device)
        return other

    def contains(self, state):
        """Mask [N] of the states that must not appear. Those of one and two numbers, five and more: none."""
        n, d = state
        k = n.shape[1]
        if k == 3:
            return isin(state_key(state), self.threes)
        if k == 4:
            small = ((d == 1) & (n >= 1) & (n <= 13)).all(1)
            return small & isin(hand_code(n * small[:, None]), self.hands)
        return (n < 0).any(1)


def hand_code(hands):
    return ((hands[:, 0] * 14 + hands[:, 1]) * 14 + hands[:, 2]) * 14 + hands[:, 3]
