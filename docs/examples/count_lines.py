"""Count the lines of the source files below a folder, by the ending of their names."""

import os
import sys
from collections import Counter


def count_lines(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return sum(1 for _ in file)


def lines_by_ending(folder):
    totals = Counter()
    for root, dirs, files in os.walk(folder):
        dirs[:] = [name for name in dirs if not name.startswith(".")]
        for name in files:
            _, ending = os.path.splitext(name)
            totals[ending or name] += count_lines(os.path.join(root, name))
    return totals


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    for ending, lines in lines_by_ending(folder).most_common(10):
        print(f"{lines:8d}  {ending}")


if __name__ == "__main__":
    main()
