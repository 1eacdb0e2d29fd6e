"""Writes the ctest entries of one doctest executable: one for each test case, named EXECUTABLE/CASE.

Run by the build after linking. doctest's own CMake script of the distributions loses names with brackets in them, and a
filter that matches no case passes; here such an entry fails.

    discover.py EXECUTABLE OUTPUT.cmake LABELS
"""

import pathlib
import subprocess
import sys


def bracket(text: str) -> str:
    return f"[==[{text}]==]"


def main() -> int:
    executable, output, labels = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    listing = subprocess.run([executable, "--list-test-cases"], capture_output=True, text=True)
    if listing.returncode != 0:
        print(f"{executable} --list-test-cases: {listing.stderr}{listing.stdout}", file=sys.stderr)
        return 1
    cases = [line for line in listing.stdout.splitlines() if line and not line.startswith(("[doctest]", "====="))]
    if len(set(cases)) != len(cases):
        print(f"{executable.name}: two test cases have the same name", file=sys.stderr)
        return 1
    lines = []
    for case in cases:
        name = bracket(f"{executable.name}/{case}")
        pattern = bracket("--test-case=" + case.replace("\\", "\\\\").replace(",", "\\,"))
        lines.append(f"add_test({name} {bracket(executable)} {pattern})")
        lines.append(
            f"set_tests_properties({name} PROPERTIES LABELS {bracket(labels)} "
            + r'FAIL_REGULAR_EXPRESSION "test cases: +0 ")'
        )
    output.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
