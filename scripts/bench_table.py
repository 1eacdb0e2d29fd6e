#!/usr/bin/env python3
"""Makes NAME.md, the table that a person reads, beside each NAME.json of a bench.

    scripts/bench_table.py [FILE.json ...]      default: all of bench/results
"""

import json
import pathlib
import sys

FIELDS = ("bench", "commit", "date", "machine", "gpu", "command", "roofs", "rows")


def cell(value):
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value).replace("|", "\\|")


def table(rows):
    keys = list(rows[0])
    for i, row in enumerate(rows):
        if list(row) != keys:
            raise ValueError(f"row {i} has the keys {list(row)}, row 0 has {keys}")
    is_number = {key: any(isinstance(row[key], (int, float)) for row in rows) for key in keys}
    yield "| " + " | ".join(keys) + " |"
    yield "| " + " | ".join("---:" if is_number[key] else "---" for key in keys) + " |"
    for row in rows:
        yield "| " + " | ".join(cell(row[key]) for key in keys) + " |"


def page(name, result):
    missing = [field for field in FIELDS if field not in result]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}")
    if not result["rows"]:
        raise ValueError("holds no rows")
    yield f"# {name}"
    yield ""
    yield f"Made from {name}.json by scripts/bench_table.py."
    yield ""
    yield f"- commit {result['commit']}, {result['date']}"
    yield f"- {result['machine']}" + (f"; {result['gpu']}" if result["gpu"] else "")
    yield f"- `{result['command']}`"
    if result["roofs"]:
        yield "- roofs: " + ", ".join(f"{key} {cell(value)}" for key, value in result["roofs"].items())
    yield ""
    yield from table(result["rows"])


def main(arguments):
    results = pathlib.Path(__file__).resolve().parent.parent / "bench" / "results"
    paths = [pathlib.Path(a) for a in arguments] or sorted(results.glob("*.json"))
    for path in paths:
        try:
            text = "\n".join(page(path.stem, json.loads(path.read_text()))) + "\n"
        except (OSError, ValueError) as error:
            sys.exit(f"bench_table.py: {path}: {error}")
        path.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
