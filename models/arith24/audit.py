"""Reads documents back, symbol by symbol, and looks for states that training must not see. Knows nothing of how they
were made: what counts is what stands in them."""

import torch

import rules
from vocabulary import BOS, DENOMINATOR_2, NUMBER_0, word

LAST_DENOMINATOR = DENOMINATOR_2 + rules.MAX_D - 2
MAX_NUMBERS = 6


def states_in(symbols):
    """symbols [N, length] -> {k: state of shape [M, k]}: every prompt's state, and every list of what is left."""
    n, length = symbols.shape
    symbols = torch.nn.functional.pad(symbols.int(), (0, 2 * MAX_NUMBERS + 1), value=-1)
    rows, at = ((symbols == BOS) | (symbols == word("left"))).nonzero(as_tuple=True)
    numbers = torch.zeros(len(rows), MAX_NUMBERS + 1, dtype=torch.int64, device=symbols.device)
    denominators = torch.ones_like(numbers)
    count = torch.zeros_like(rows)
    open_ = torch.ones_like(rows, dtype=torch.bool)
    for step in range(1, 2 * MAX_NUMBERS + 1):
        symbol = symbols[rows, at + step].long()
        is_number = open_ & (symbol >= NUMBER_0) & (symbol < DENOMINATOR_2)
        is_denominator = open_ & (symbol >= DENOMINATOR_2) & (symbol <= LAST_DENOMINATOR) & (count > 0)
        open_ &= is_number | is_denominator
        count += is_number
        column = (count - 1).clamp(min=0)[:, None]
        numbers.scatter_(1, column, torch.where(is_number, symbol - NUMBER_0, numbers.gather(1, column)[:, 0])[:, None])
        denominators.scatter_(1, column, torch.where(is_denominator, symbol - DENOMINATOR_2 + 2,
                                                     denominators.gather(1, column)[:, 0])[:, None])  # fmt: skip
    states = {}
    for k in range(1, MAX_NUMBERS + 1):
        of_k = count == k
        states[k] = rules.sort_state(numbers[of_k][:, :k], denominators[of_k][:, :k])
    return states


def count_excluded(symbols, excluded):
    """(states read, excluded ones among them)"""
    n_states = n_excluded = 0
    for part in symbols.split(200_000):
        for state in states_in(part).values():
            n_states += len(state[0])
            n_excluded += int(excluded.contains(state).sum())
    return n_states, n_excluded
