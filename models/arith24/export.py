"""Makes a Hugging Face directory of a checkpoint that train.py wrote.

    python3 models/arith24/export.py DIR/final models/arith24/hf
    python3 models/arith24/export.py DIR/weak models/arith24-weak/hf

The first argument is the path of the two parts without "-1.safetensors". Needs safetensors and torch.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from safetensors import safe_open  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from model import MAX_POSITIONS, hf_config  # noqa: E402
from vocabulary import BOS, EOS, tokenizer_model  # noqa: E402


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    checkpoint, folder = sys.argv[1:]
    tensors = {}
    for part in (1, 2):
        with safe_open(f"{checkpoint}-{part}.safetensors", framework="pt") as file:
            shape = json.loads(file.metadata()["shape"])
            tensors.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    os.makedirs(folder, exist_ok=True)
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
        file.write(tokenizer_model())
    write_json(folder, "config.json", hf_config(shape))
    write_json(folder, "generation_config.json", {"bos_token_id": BOS, "eos_token_id": [EOS]})
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "add_bos_token": True, "add_eos_token": False, "legacy": False, "model_max_length": MAX_POSITIONS,
    })  # fmt: skip


if __name__ == "__main__":
    main()
