"""How long a vocabulary takes to read, against the `gguf` package, in one run.

python benchmarks/vocabulary.py
"""

from __future__ import annotations

from gguf import GGUFReader
from harness.streams import model_path
from harness.timing import best_seconds

from suture.healing import Vocabulary


def main() -> None:
    path = model_path()
    times = best_seconds(
        {
            "suture, with its index": lambda: Vocabulary.from_gguf(path),
            "gguf.GGUFReader, no index": lambda: GGUFReader(path),
        },
        1,
    )
    ours = times["suture, with its index"]
    print(f"reading {Vocabulary.from_gguf(path).n_vocab} tokens of {path.name}")
    for name, seconds in times.items():
        print(f"  {name:28s}{seconds:8.3f} s{seconds / ours:8.1f} times ours")


if __name__ == "__main__":
    main()
