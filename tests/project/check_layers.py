"""Reads every #include of the project and fails on one that points upwards (docs/design.md, "Layers").

    check_layers.py ROOT

A file has a layer number; it may include our files of its own layer and of lower ones. Some layers are narrower than
their number: kernels know types alone, drivers and tools know the public headers alone. Libraries from outside have the
places where they may be seen.
"""

import pathlib
import re
import sys

# The public headers. A header that is not listed fails the check, so that its layer is a decision.
PUBLIC = {
    "error": 0, "types": 0, "lse": 0, "attention_types": 0, "read_file": 0, "mapped_file": 0,
    "tokenizer": 1,
    "kv_pool": 2, "tree": 2, "graph": 2,
    "plan": 3, "tree_file": 3,
    "model": 5, "calibrate": 5, "convert": 5,
    "sampler": 6,
    "runner": 7, "session": 7, "session_group": 7, "task": 7, "tree_view": 7,
}  # fmt: skip
# Whole folders of public headers: the drivers and the harnesses.
PUBLIC_FOLDERS = {"search": 8, "code": 8}
FOLDERS = {
    "src/base": 0, "src/tokens": 1, "src/tree": 2, "src/plan": 3, "kernels": 4, "src/model": 5, "src/sampler": 6,
    "src/engine": 7, "search": 8, "src/cli": 9, "examples": 9, "bench": 9,
}  # fmt: skip
# A layer that may see less than all that lies below it.
NARROW = {1: {0, 1}, 2: {0, 2}, 3: {0, 2, 3}, 4: {0, 4}, 5: {0, 1, 2, 3, 4, 5}, 6: {0, 4, 6}}

# Libraries from outside, by the first part of the include path, and the places that may see them.
EXTERNAL = {
    "boost": ["include/banyan/graph.hpp", "src/", "examples/", "bench/"],
    "fmt": ["src/", "kernels/", "search/", "bench/"],
    "nlohmann": ["src/", "search/", "bench/"],
    "CLI": ["src/cli/", "bench/"],
    "spdlog": ["src/cli/"],
    "cuda": ["kernels/cuda/"],
    "cublas": ["kernels/cuda/"],
    "pcre2": ["src/tokens/"],
    "utf8proc": ["src/tokens/"],
    "Random123": ["kernels/"],
    "zlib": ["search/"],
}  # fmt: skip
# nvcc takes minutes or fails over these.
NOT_IN_CUDA = {"fmt", "boost", "nlohmann"}

SUFFIXES = {".hpp", ".h", ".inl", ".cpp", ".cu", ".cuh"}
ROOTS = ["include", "src", "kernels", "search", "examples", "bench"]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def public_layer(path: str) -> int | None:
    """Layer of "banyan/x.hpp" or "banyan/folder/x.hpp"; None if it is not in the map."""
    parts = pathlib.PurePosixPath(path).parts
    if len(parts) > 2:
        return PUBLIC_FOLDERS.get(parts[1])
    return PUBLIC.get(parts[1].removesuffix(".hpp"))


def file_layer(path: str) -> int | None:
    """Layer of a file by its path from the root; None if no layer owns it."""
    if path.startswith("include/banyan/"):
        return public_layer(path.removeprefix("include/"))
    for folder, layer in FOLDERS.items():
        if path.startswith(folder + "/"):
            return layer
    return None


def resolve(root: pathlib.Path, file: str, target: str) -> str | None:
    """Path from the root of one of our files that `target` means in `file`; None if it is from outside."""
    here = str(pathlib.PurePosixPath(file).parent)
    for base in (here, "include", "src", "."):
        candidate = root / base / target
        if candidate.is_file():
            return candidate.resolve().relative_to(root).as_posix()
    return None


def external(target: str) -> str | None:
    """The key of EXTERNAL that an include belongs to, if any."""
    first = re.split(r"[/._]", target, maxsplit=1)[0]
    for name in EXTERNAL:
        if first == name or (name in ("cuda", "cublas") and first.startswith(name)):
            return name
    return None


def check_include(root: pathlib.Path, file: str, layer: int, target: str) -> str | None:
    """What is wrong with this include, or None."""
    if target.startswith("banyan/") and public_layer(target) is None:
        return f'"{target}" is in no layer: add it to PUBLIC in tests/project/check_layers.py'
    ours = resolve(root, file, target)
    if ours is None:
        if target.startswith("banyan/"):
            return f'"{target}" does not exist'
        library = external(target)
        if library is None:
            return None
        if not file.startswith(tuple(EXTERNAL[library])):
            return f"<{target}> may be included in {', '.join(EXTERNAL[library])} alone"
        if library in NOT_IN_CUDA and file.endswith((".cu", ".cuh")):
            return f"<{target}> must not reach a CUDA file"
        return None

    below = file_layer(ours)
    if below is None:
        return f"{ours} is in no layer: give its folder one in tests/project/check_layers.py"
    if below > layer:
        return f"{ours} is of layer {below}, above this file's {layer}"
    if below not in NARROW.get(layer, range(layer + 1)):
        return f"{ours} is of layer {below}, which layer {layer} must not know"
    if file.startswith("include/") and not ours.startswith("include/"):
        return f"{ours} is internal; a public header includes public headers alone"
    if layer >= 8 and not ours.startswith("include/") and file_folder(ours) != file_folder(file):
        if file.startswith("bench/") and ours.startswith("kernels/"):
            return None  # a kernel bench measures each instruction set by itself
        return f"{ours} is internal; search, cli, examples and bench see include/banyan alone"
    return None


def file_folder(path: str) -> str:
    return next((folder for folder in FOLDERS if path.startswith(folder + "/")), "include")


def check(root: pathlib.Path) -> tuple[list[str], int]:
    """All problems as "file:line: what", and how many files were read."""
    root = root.resolve()
    problems, n_files = [], 0
    for top in ROOTS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            n_files += 1
            file = path.relative_to(root).as_posix()
            layer = file_layer(file)
            if layer is None:
                problems.append(f"{file}:1: in no layer: add it to tests/project/check_layers.py")
                continue
            text = path.read_text(encoding="utf-8")
            for match in INCLUDE.finditer(text):
                problem = check_include(root, file, layer, match.group(2))
                if problem:
                    line = text.count("\n", 0, match.start(2)) + 1
                    problems.append(f"{file}:{line}: {problem}")
    return problems, n_files


def main() -> int:
    problems, n_files = check(pathlib.Path(sys.argv[1]))
    for problem in problems:
        print(problem)
    if n_files == 0:
        print(f"{sys.argv[1]}: no source file found")
        return 1
    print(f"{n_files} files read, {len(problems)} includes point the wrong way")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
