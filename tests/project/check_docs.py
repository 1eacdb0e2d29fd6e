"""Checks the Markdown files: code blocks that quote a file say what the file says, links within the project lead
somewhere, and the folders that README's tables name exist.

    check_docs.py ROOT [--write]      --write copies the files into the blocks that quote them

A block quotes a file when the line before its fence is <!-- file: PATH -->, PATH from the root.
"""

import pathlib
import re
import sys

QUOTE = re.compile(r"(<!-- file: (?P<path>\S+) -->\n```\w*\n)(?P<body>.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s#]+)(#[^)]*)?\)")
# In README's tables, `a/b` in code font is a path from the root; {a,b} and * as in a shell.
TABLE_PATH = re.compile(r"`(?P<path>[\w./*{},-]+/[\w./*{},-]*)`")
SKIPPED_FOLDERS = {"build", "out", ".git", ".cache"}


def braces(pattern: str) -> list[str]:
    """Expands the first {a,b} of a pattern, as a shell would."""
    match = re.search(r"\{([^}]*)\}", pattern)
    if not match:
        return [pattern]
    return [pattern[: match.start()] + choice + pattern[match.end() :] for choice in match.group(1).split(",")]


def check_quotes(root: pathlib.Path, document: pathlib.Path, write: bool) -> list[str]:
    text, problems = document.read_text(encoding="utf-8"), []

    def replace(match: re.Match) -> str:
        source = root / match["path"]
        if not source.is_file():
            problems.append(f"quotes {match['path']}, which does not exist")
            return match[0]
        content = source.read_text(encoding="utf-8")
        if match["body"] != content and not write:
            problems.append(f"its block differs from {match['path']}; to copy it: {sys.argv[0]} {root} --write")
        return match[1] + content

    written = QUOTE.sub(replace, text)
    if write and written != text:
        document.write_text(written, encoding="utf-8")
    return problems


def check_paths(root: pathlib.Path, document: pathlib.Path) -> list[str]:
    text, problems = FENCED.sub("", document.read_text(encoding="utf-8")), []
    for match in LINK.finditer(text):
        target = match["target"]
        if "://" not in target and not target.startswith("mailto:") and not (document.parent / target).exists():
            problems.append(f"links to {target}, which does not exist")
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    for match in TABLE_PATH.finditer(rows):
        for pattern in braces(match["path"].rstrip("/")):
            if not any(root.glob(pattern)):
                problems.append(f"names {pattern}, which does not exist")
    return problems


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve()
    documents = [
        path for path in sorted(root.rglob("*.md")) if not SKIPPED_FOLDERS & set(path.relative_to(root).parts)
    ]
    if root / "README.md" not in documents:
        print(f"{root}: no README.md")
        return 1
    problems = []
    for document in documents:
        name = document.relative_to(root)
        problems += [f"{name}: {what}" for what in check_quotes(root, document, write="--write" in sys.argv)]
        if name.parts[0] != "bench":  # results keep the paths of their day
            problems += [f"{name}: {what}" for what in check_paths(root, document)]
    for problem in problems:
        print(problem)
    print(f"{len(documents)} documents read, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
