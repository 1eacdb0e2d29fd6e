"""Puts the runs that llamacpp.sh left in a folder into one result file: medians of each configuration.

    llamacpp_rows.py RUNS OUT.json

RUNS: "llamacpp.TYPE.jsonl", a line of llama-batched-bench per round, and bench_decode's "banyan.*.json".
"""

import json
import pathlib
import sys
from statistics import median


def main(runs, out):
    runs = pathlib.Path(runs)
    ours = [json.loads(path.read_text()) for path in sorted(runs.glob("banyan.*.json"))]
    banyan = [result["rows"][0] for result in ours]
    print(f"banyan: {', '.join(format(row['tok_s'], '.0f') for row in banyan)} tok/s")
    rows = []
    for path in sorted(runs.glob("llamacpp.*.jsonl")):
        peer = [json.loads(line) for line in path.read_text().splitlines()]
        kind = path.name.removeprefix("llamacpp.").removesuffix(".jsonl")
        print(f"llama.cpp {kind}: {', '.join(format(run['speed_tg'], '.0f') for run in peer)} tok/s")
        rows.append({
            "n_prompt": peer[0]["pp"],
            "n_samples": peer[0]["pl"],
            "n_new": peer[0]["tg"],
            "type": kind,
            "banyan_tok_s": round(median(row["tok_s"] for row in banyan), 1),
            "llamacpp_tok_s": round(median(run["speed_tg"] for run in peer), 1),
            "banyan_prefill_tok_s": round(median(1e3 * row["n_prefix"] / row["prefill_ms"] for row in banyan), 1),
            "llamacpp_prefill_tok_s": round(median(run["speed_pp"] for run in peer), 1),
        })
    head = {key: ours[0][key] for key in ("bench", "commit", "date", "machine", "gpu", "command", "roofs")}
    head |= {"bench": "llamacpp-cpu", "command": "bench/peers/llamacpp.sh; banyan: " + head["command"].split(" --out")[0]}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    table = ",\n".join(json.dumps(row) for row in rows)
    pathlib.Path(out).write_text("{\n" + ",\n".join(lines) + ',\n"rows": [\n' + table + "\n]}\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
