"""Fails on a tracked C++ file that clang-format would change. Skipped (77) without clang-format 14 or a git checkout.

    check_format.py ROOT

The version is fixed because versions disagree; both distributions that we build on have this one.
"""

import pathlib
import re
import shutil
import subprocess
import sys

VERSION = "14"
PATTERNS = ["*.cpp", "*.hpp", "*.cu", "*.cuh"]


def find_clang_format() -> str | None:
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path and f"version {VERSION}." in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    clang_format = find_clang_format()
    if clang_format is None:
        print(f"skipped: clang-format {VERSION} is not installed")
        return 77
    # The owner of a checkout may be another user (a container's mount): reading a listing is safe.
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={root}", "-C", root, "ls-files", "-z", "--", *PATTERNS], capture_output=True
    )
    if listing.returncode != 0:
        print("skipped: not a git checkout, so there is no list of files")
        return 77
    files = [name for name in listing.stdout.decode().split("\0") if name and (root / name).is_file()]
    if not files:
        print("no C++ file is tracked")
        return 1
    result = subprocess.run([clang_format, "--dry-run", "--Werror", *files], cwd=root, capture_output=True, text=True)
    if result.returncode == 0:
        print(f"{len(files)} files are formatted")
        return 0
    wrong = sorted(set(re.findall(r"^(.+?):\d+:\d+: error:", result.stderr, re.MULTILINE)))
    print(f"clang-format {VERSION} would change {len(wrong)} of {len(files)} files; to do it:")
    print(" ".join([pathlib.Path(clang_format).name, "-i", *wrong]) if wrong else result.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
