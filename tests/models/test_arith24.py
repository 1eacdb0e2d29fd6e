"""Training documents of models/arith24 hold no state that is excluded.

    test_arith24.py ROOT PUZZLES

Reads the log of the run that made the weights: each of its documents was audited. Then, where torch is installed, makes
documents with the generator, reads them as texts, and looks for excluded states with fractions and sets of its own.
Exit code 77: nothing could be tested.
"""

import csv
import itertools
import json
import os
import sys
from fractions import Fraction


def excluded_states(path):
    with open(path, encoding="utf-8", newline="") as file:
        hands = [tuple(sorted(map(Fraction, row["Puzzles"].split()))) for row in csv.DictReader(file)]
    states = set(hands)
    for hand in hands[900:1000]:
        for x, y in itertools.permutations(range(4), 2):
            rest = [number for i, number in enumerate(hand) if i not in (x, y)]
            a, b = hand[x], hand[y]
            for result in (a + b, a - b, a * b, a / b if b else None):
                if result is not None:
                    states.add(tuple(sorted([*rest, abs(result)])))
    return states


def states_of(text):
    """The state of the prompt, and what each step leaves."""
    prompt, _, steps = text.partition("\n")
    numbers = list(itertools.takewhile(lambda word: word[0].isdigit(), prompt.split()))
    yield tuple(sorted(map(Fraction, numbers)))
    for line in steps.splitlines():
        if " left " in line:
            yield tuple(sorted(map(Fraction, line.split(" left ")[1].split())))


def check_log(path):
    with open(path, encoding="utf-8") as file:
        audits = [row for row in map(json.loads, file) if row["event"] == "audit"]
    assert len(audits) >= 16, f"{path}: {len(audits)} tables were audited"
    for row in audits:
        assert row["excluded"] == 0 and row["states"] >= row["documents"] > 0, row
    print(f"log: {sum(row['documents'] for row in audits)} documents audited")


def check_generator(puzzles):
    import generate
    import rules
    import torch
    from vocabulary import text_of

    torch.manual_seed(1)
    excluded = rules.Excluded(rules.read_puzzles(puzzles)).on("cpu")
    truth = excluded_states(puzzles)
    four, three = generate.moves_tables(20_000, excluded, "cpu")
    tables = {"four moves": four, "three moves": three}
    tables |= {" ".join(map(str, key)): t for key, t in generate.value_tables(20_000, excluded, "cpu").items()}
    tables |= generate.solution_tables(20_000, excluded, "cpu")
    n_states = 0
    for name, table in tables.items():
        for row in table.symbols[torch.randperm(len(table.symbols))[:2000]]:
            text = text_of(row.tolist())
            for state in states_of(text):
                n_states += 1
                assert state not in truth, f"{name}: {text!r} holds {state}"
    print(f"generator: none of {n_states} states is excluded")


def main():
    root, puzzles = sys.argv[1:]
    folder = os.path.join(root, "models", "arith24")
    sys.path.insert(0, folder)
    assert states_of(" 1 2 7 7 to 24 solve\n 7 * 7 = 49 left 1 2 49\n").__next__() == (1, 2, 7, 7)
    tested = False
    if os.path.exists(os.path.join(folder, "log.jsonl")):
        check_log(os.path.join(folder, "log.jsonl"))
        tested = True
    try:
        import torch  # noqa: F401
    except ImportError:
        print("generator: skipped, no torch")
    else:
        if os.path.exists(puzzles):
            check_generator(puzzles)
            tested = True
        else:
            print("generator: skipped, no published puzzles")
    sys.exit(0 if tested else 77)


if __name__ == "__main__":
    main()
