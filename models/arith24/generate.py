"""Makes the training documents, by rule, on whatever device it is given.

Four forms, each a prompt and what the model is to write behind it:

    4 6 12 to 24 value            -> sure                      (or: impossible)
    4 6 12 moves                  ->  4 + 6 = 10 ...           (every move, one a line)
    1 2 7 7 to 24 solve           ->  7 * 7 = 49 left 1 2 49   (a whole solution)
    3 8 25 50 75 to 412 solve     -> the same for other targets

A document is a row of symbols; `weight` says which of them are learnt: what is written behind the prompt, but not the
choice of a first move where one of the moves leads to an excluded state. (Leaving such hands out would teach the model
to avoid those moves, and the test puzzles need them.)
"""

import torch

import rules
from rules import TARGET
from vocabulary import BOS, DENOMINATOR_2, EOS, NEWLINE, NUMBER_0, word

PAD = EOS


class Writer:
    """Puts documents together column by column; a column that a document lacks holds -1 and is squeezed out."""

    def __init__(self, n, device):
        self.n, self.device = n, device
        self.columns, self.weights = [], []

    def symbol(self, ids, weight=1, where=None):
        ids = torch.as_tensor(ids, device=self.device).expand(self.n)
        self.columns.append(ids if where is None else torch.where(where, ids, -1))
        self.weights.append(torch.as_tensor(weight, device=self.device).expand(self.n).to(torch.int8))

    def number(self, number, weight=1, where=None):
        n, d = number
        self.symbol(NUMBER_0 + n, weight, where)
        fraction = d > 1 if where is None else (d > 1) & where
        self.symbol(DENOMINATOR_2 + d - 2, weight, fraction)

    def state(self, state, weight=1, where=None):
        for i in range(state[0].shape[1]):
            self.number(rules.column(state, i), weight, where)

    def rows(self, length):
        """(symbols int16, weights int8, fits): rows of `length`; those that are longer do not fit."""
        symbols, weights = torch.stack(self.columns, 1), torch.stack(self.weights, 1)
        there = symbols >= 0
        order = torch.argsort((~there).to(torch.int8), dim=1, stable=True)[:, :length]
        symbols, weights = symbols.gather(1, order), weights.gather(1, order)
        n_symbols = there.sum(1)
        behind = torch.arange(symbols.shape[1], device=self.device) >= n_symbols[:, None]
        symbols = symbols.masked_fill(behind, PAD)
        weights = weights.masked_fill(behind, 0)
        short = length - symbols.shape[1]
        if short > 0:
            symbols = torch.nn.functional.pad(symbols, (0, short), value=PAD)
            weights = torch.nn.functional.pad(weights, (0, short), value=0)
        return symbols.to(torch.int16), weights, n_symbols <= length


def keep(state, mask):
    return state[0][mask], state[1][mask]


def concat(states):
    return torch.cat([s[0] for s in states]), torch.cat([s[1] for s in states])


# --- states ------------------------------------------------------------------------------------------------------------


def small_hands(device):
    """All 1,820 hands of four numbers from 1 to 13."""
    numbers = torch.arange(1, 14, device=device)
    return rules.whole(torch.combinations(numbers, 4, with_replacement=True))


def random_hands(n, device):
    """Hands that are like the puzzles and are none of them: one or two numbers beyond 13, a zero, or a fraction."""
    small = torch.randint(1, 14, (n, 4), device=device)
    kind = torch.randint(0, 16, (n,), device=device)
    beyond = torch.randint(14, 41, (n, 4), device=device)
    hands = small.clone()
    one = kind < 6
    hands[:, 0] = torch.where(one | (kind < 9), beyond[:, 0], hands[:, 0])
    hands[:, 1] = torch.where((kind >= 6) & (kind < 9), beyond[:, 1], hands[:, 1])
    wide = (kind >= 9) & (kind < 11)
    hands = torch.where(wide[:, None], torch.randint(1, 76, (n, 4), device=device), hands)
    hands[:, 0] = torch.where(kind == 11, 0, hands[:, 0])
    d = torch.ones_like(hands)
    fraction = kind >= 12
    d[:, 0] = torch.where(fraction, torch.randint(2, 14, (n,), device=device), 1)
    hands[:, 0] = torch.where(fraction & (kind == 15), beyond[:, 0], hands[:, 0])
    hands, d = rules.reduce(hands, d)
    return rules.sort_state(hands, d)


def backward_threes(n, device):
    """Three whole numbers made from 24 backwards, by two moves; half of them with one number changed a little, which
    mostly makes them impossible. There are millions, too many to know by heart."""
    def small_or_large():
        small = torch.randint(1, 14, (n,), device=device)
        large = torch.randint(1, 151, (n,), device=device)
        return torch.where(torch.rand(n, device=device) < 0.6, small, large)

    def other_operand(result, x, op):  # y with x op y = result in some order; 0 where there is no whole one
        divides = (x > 0) & (result % x.clamp(min=1) == 0)
        divided = (result > 0) & (x % result.clamp(min=1) == 0)
        choices = (result - x, x + result, x - result, torch.where(divides, result // x.clamp(min=1), 0), result * x,
                   torch.where(divided, x // result.clamp(min=1), 0))  # fmt: skip
        return torch.stack(choices, 1).gather(1, op[:, None])[:, 0]

    z, x = small_or_large(), small_or_large()
    ops = torch.randint(0, 6, (n, 2), device=device)
    r = other_operand(torch.full_like(z, TARGET), z, ops[:, 0])
    y = other_operand(r, x, ops[:, 1])
    numbers = torch.stack((x, y, z), 1)
    change = torch.randint(-3, 4, (n,), device=device) * (torch.rand(n, device=device) < 0.5)
    numbers.scatter_add_(1, torch.randint(0, 3, (n, 1), device=device), change[:, None])
    usable = (r > 0) & (numbers > 0).all(1) & (numbers <= rules.MAX_N).all(1)
    return rules.whole(numbers[usable].sort(1)[0])


def wide_threes(n, device):
    """Two numbers from 1 to 13 and one of the kinds that a move makes: up to 169, or a fraction."""
    numbers = torch.randint(1, 14, (n, 3), device=device)
    d = torch.ones_like(numbers)
    kind = torch.randint(0, 8, (n,), device=device)
    third = numbers[:, 2]
    third = torch.where(kind < 3, torch.randint(0, 27, (n,), device=device), third)
    third = torch.where(kind == 3, torch.randint(0, 170, (n,), device=device), third)
    numbers[:, 2] = torch.where(kind >= 6, torch.randint(1, 27, (n,), device=device), third)
    d[:, 2] = torch.where(kind >= 6, torch.randint(2, 14, (n,), device=device), 1)
    numbers, d = rules.reduce(numbers, d)
    return rules.sort_state(numbers, d)


def random_children(state):
    """What one legal move of each state, drawn evenly, makes of it."""
    found = rules.moves(state)
    legal = torch.stack([legal for *_, legal in found], 1)
    return pick_child(found, draw(legal))


def draw(allowed):
    """One of the allowed columns of each row; any where none is allowed."""
    none = ~allowed.any(1, keepdim=True)
    return torch.multinomial(allowed.float() + none, 1)[:, 0]


def pick_child(found, pick):
    n = torch.stack([child[0] for *_, child, _ in found], 1)  # [N, moves, k - 1]
    d = torch.stack([child[1] for *_, child, _ in found], 1)
    at = pick[:, None, None].expand(-1, 1, n.shape[2])
    return n.gather(1, at)[:, 0], d.gather(1, at)[:, 0]


def all_children(state):
    found = rules.moves(state)
    return concat([keep(child, legal) for *_, child, legal in found])


def states_of_keys(key, k):
    """The states of k <= 3 numbers that have these keys."""
    numbers = []
    for _ in range(k):
        numbers.append(key & ((1 << 20) - 1))
        key = key >> 20
    packed = torch.stack(numbers[::-1], 1)
    return packed // (rules.MAX_D + 1), packed % (rules.MAX_D + 1)


def unique_states(state):
    """Of states of at most three numbers."""
    return states_of_keys(torch.unique(rules.state_key(state)), state[0].shape[1])


# --- documents ---------------------------------------------------------------------------------------------------------


def value_documents(state, target):
    """(writer, answer sure [N])"""
    n, device = state[0].shape[0], state[0].device
    target = torch.as_tensor(target, device=device).expand(n)
    sure = rules.solvable_state(state, target)
    out = Writer(n, device)
    out.symbol(BOS, 0)
    out.state(state, 0)
    out.symbol(word("to"), 0)
    out.symbol(NUMBER_0 + target, 0)
    out.symbol(word("value"), 0)
    out.symbol(torch.where(sure, word("sure"), word("impossible")))
    return out, sure


def moves_documents(state, length):
    n, device = state[0].shape[0], state[0].device
    out = Writer(n, device)
    out.symbol(BOS, 0)
    out.state(state, 0)
    out.symbol(word("moves"), 0)
    out.symbol(NEWLINE, 0)
    for x, y, op, result, _, legal in rules.moves(state):
        write_move(out, x, op, y, result, 1, legal)
        out.symbol(NEWLINE, 1, legal)
    out.symbol(EOS)
    return out.rows(length)


def write_move(out, x, op, y, result, choice_weight, where=None):
    out.number(x, choice_weight, where)
    names = torch.tensor([word(name) for name in rules.OPS], device=out.device)
    out.symbol(names[op] if torch.is_tensor(op) else word(rules.OPS[op]), choice_weight, where)
    out.number(y, choice_weight, where)
    out.symbol(word("="), 1, where)
    out.number(result, 1, where)


def solution_documents(state, target, excluded, length):
    """Whole solutions by moves drawn evenly from the good ones. Returns (symbols, weights, usable, choice): unusable
    where there is no solution, or only one through an excluded state; choice where the first choice is learnt."""
    n, device = state[0].shape[0], state[0].device
    target = torch.as_tensor(target, device=device).expand(n)
    out = Writer(n, device)
    out.symbol(BOS, 0)
    out.state(state, 0)
    out.symbol(word("to"), 0)
    out.symbol(NUMBER_0 + target, 0)
    out.symbol(word("solve"), 0)
    out.symbol(NEWLINE, 0)
    usable = torch.ones(n, dtype=torch.bool, device=device)
    choice = usable
    while state[0].shape[1] > 1:
        found = rules.moves(state)
        good, hidden = [], torch.zeros_like(usable)
        for *_, child, legal in found:
            out_of_sight = excluded.contains(child) & legal
            hidden |= out_of_sight
            good.append(legal & ~out_of_sight & rules.solvable_state(child, target))
        good = torch.stack(good, 1)
        usable &= good.any(1)
        pick = draw(good)
        choice = choice & ~hidden
        state = write_step(out, found, pick, ~hidden)
    out.symbol(EOS)
    symbols, weights, fits = out.rows(length)
    return symbols, weights, usable & fits, choice


def write_step(out, found, pick, choice_weight):
    """The picked move of each row, and what is left. Returns the child."""
    at = pick[:, None]

    def picked(column):  # of (n, d) over the moves
        return tuple(torch.stack([column(move)[i] for move in found], 1).gather(1, at)[:, 0] for i in (0, 1))

    ops = torch.tensor([move[2] for move in found], device=out.device)
    child = pick_child(found, pick)
    write_move(out, picked(lambda m: m[0]), ops[pick], picked(lambda m: m[1]), picked(lambda m: m[3]), choice_weight)
    if child[0].shape[1] > 1:
        out.symbol(word("left"))
        out.state(child)
    out.symbol(NEWLINE)
    return child


def countdown_hands(n, k, device):
    """k numbers, mostly from 1 to 10, some of 25, 50, 75, 100, as in the game."""
    small = torch.randint(1, 11, (n, k), device=device)
    large = 25 * torch.randint(1, 5, (n, k), device=device)
    return rules.whole(torch.where(torch.rand(n, k, device=device) < 0.3, large, small).sort(1)[0])


def countdown_documents(n, k, excluded, device, length):
    """Solutions of hands for the target that random moves happen to reach: whole numbers up to 999 all the way."""
    state = first = countdown_hands(n, k, device)
    steps = []
    usable = torch.ones(n, dtype=torch.bool, device=device)
    while state[0].shape[1] > 1:
        found = rules.moves(state)
        hidden = torch.stack([excluded.contains(child) & legal for *_, child, legal in found], 1).any(1)
        allowed = torch.stack([legal & (result[1] == 1) & (result[0] > 0) for *_, result, _, legal in found], 1)
        usable &= allowed.any(1) & ~excluded.contains(state)
        pick = draw(allowed)
        steps.append((found, pick, ~hidden))
        state = pick_child(found, pick)
    target = state[0][:, 0].clamp(0, rules.MAX_N)
    out = Writer(n, device)
    out.symbol(BOS, 0)
    out.state(first, 0)
    out.symbol(word("to"), 0)
    out.symbol(NUMBER_0 + target, 0)
    out.symbol(word("solve"), 0)
    out.symbol(NEWLINE, 0)
    for found, pick, choice in steps:
        write_step(out, found, pick, choice)
    out.symbol(EOS)
    symbols, weights, fits = out.rows(length)
    return symbols, weights, usable & fits & (target >= 10) & (target != TARGET)


def countdown_states(n, k, device):
    """States of k numbers out of such games, and a target that is reached (half of them) or one near it."""
    return with_targets(random_children(countdown_hands(n, k + 1, device)))


def with_targets(state, share_reached=0.5):
    """The states with a whole target: one that some moves reach, or one near it. Not 24."""
    n, device = state[0].shape[0], state[0].device
    end = state
    while end[0].shape[1] > 1:
        end = random_children(end)
    reached = end[0][:, 0]
    near = reached + torch.randint(-12, 13, (n,), device=device)
    target = torch.where(torch.rand(n, device=device) < share_reached, reached, near)
    usable = (end[1][:, 0] == 1) & (target >= 1) & (target <= rules.MAX_N) & (target != TARGET)
    return keep(state, usable), target[usable]


# --- tables ------------------------------------------------------------------------------------------------------------


class Table:
    """Documents of one form and length, from which batches are drawn."""

    def __init__(self, length):
        self.length, self.parts = length, []

    def add(self, symbols, weights, usable):
        self.parts.append((symbols[usable], weights[usable]))

    def close(self):
        self.symbols = torch.cat([part[0] for part in self.parts])
        self.weights = torch.cat([part[1] for part in self.parts])
        self.parts = []
        return self

    def draw(self, n):
        at = torch.randint(0, self.symbols.shape[0], (n,), device=self.symbols.device)
        return self.symbols[at].long(), self.weights[at]


def chunks(n, size):
    return [min(size, n - begin) for begin in range(0, n, size)]


def without(state, excluded):
    return keep(state, ~excluded.contains(state))


def training_threes(excluded, device):
    """All states of three numbers below the 1,820 hands, less the excluded ones."""
    return without(unique_states(all_children(small_hands(device))), excluded)


def value_tables(scale, excluded, device):
    """{(name, "sure" | "impossible", length): Table}. Three whole numbers take 8 symbols, most others up to 16.

    core      the states that a game meets
    wide      more of their kind
    backward  millions of states, whose numbers are larger
    targets   states that a game meets, with other targets: as many again, of the same numbers
    """
    tables = {}

    def add(name, state, target):
        out, sure = value_documents(state, target)
        usable = ~excluded.contains(state)
        for length in (8, 16):
            symbols, weights, fits = out.rows(length)
            for kind, mask in (("sure", sure), ("impossible", ~sure)):
                tables.setdefault((name, kind, length), Table(length)).add(symbols, weights, usable & fits & mask)
            usable = usable & ~fits

    threes = training_threes(excluded, device)
    add("core", threes, TARGET)
    twos = unique_states(all_children(threes))
    add("two", twos, TARGET)
    ones = torch.arange(0, rules.MAX_N + 1, device=device)[:, None]
    add("one", rules.whole(ones), TARGET)
    for n in chunks(4_000_000 // scale, 500_000):
        add("wide", wide_threes(n // 2, device), TARGET)
        add("wide", random_children(random_hands(n // 2, device)), TARGET)
        add("backward", backward_threes(3 * n, device), TARGET)
    for n in chunks(6_000_000 // scale, 500_000):
        at = torch.randint(0, len(threes[0]), (n,), device=device)
        add("targets", *with_targets(keep(threes, at)))
        add("targets", *with_targets(without(wide_threes(n // 4, device), excluded)))
        at = torch.randint(0, len(twos[0]), (n // 16,), device=device)
        add("two", *with_targets(keep(twos, at)))
    for k in (3, 4):
        for n in chunks(500_000 // scale, 100_000):
            add("other", *countdown_states(n, k, device))
    return {key: table.close() for key, table in tables.items()}


def moves_tables(scale, excluded, device):
    four, three = Table(256), Table(128)
    unsolvable = small_hands(device)
    for states in [unsolvable] * 4 + [random_hands(n, device) for n in chunks(200_000 // scale, 25_000)]:
        states = without(states, excluded)
        four.add(*moves_documents(states, 256))
    threes = training_threes(excluded, device)
    for states in [threes] * 3 + [wide_threes(n, device) for n in chunks(100_000 // scale, 25_000)]:
        states = without(states, excluded)
        three.add(*moves_documents(states, 128))
    for n in chunks(100_000 // scale, 25_000):
        three.add(*moves_documents(random_children(without(wide_threes(n, device), excluded)), 128))
    return four.close(), three.close()


def solution_tables(scale, excluded, device):
    """choice, rest: hands of four numbers whose first choice is learnt, and others; three: of three numbers; targets:
    both, for other targets."""
    tables = {name: Table(48) for name in ("choice", "rest", "three", "targets")} | {"countdown": Table(64)}
    for n in chunks(6_000_000 // scale, 300_000):
        hands = without(random_hands(n, device), excluded)
        symbols, weights, usable, choice = solution_documents(hands, TARGET, excluded, 48)
        tables["choice"].add(symbols, weights, usable & choice)
        # As many of the others are not needed.
        tables["rest"].add(symbols, weights, usable & ~choice & (torch.rand(len(usable), device=device) < 0.3))
    for n in chunks(2_000_000 // scale, 250_000):
        hands, targets = with_targets(without(random_hands(n, device), excluded), 1.0)
        symbols, weights, usable, choice = solution_documents(hands, targets, excluded, 48)
        tables["targets"].add(symbols, weights, usable & choice)
    threes = training_threes(excluded, device)
    for _ in range(max(1, 8 // scale)):
        tables["three"].add(*solution_documents(threes, TARGET, excluded, 48)[:3])
    for n in chunks(1_000_000 // scale, 250_000):
        wide = without(wide_threes(n, device), excluded)
        tables["three"].add(*solution_documents(wide, TARGET, excluded, 48)[:3])
        at = torch.randint(0, len(threes[0]), (n,), device=device)
        tables["targets"].add(*solution_documents(*with_targets(keep(threes, at), 1.0), excluded, 48)[:3])
    for k in (4, 5, 6):
        for n in chunks(1_000_000 // scale, 100_000):
            tables["countdown"].add(*countdown_documents(n, k, excluded, device, 64))
    return {name: table.close() for name, table in tables.items()}
