// A text for each language to begin with; the cursor stands at ‸.

export const SAMPLES = {
  python: `from pathlib import Path


def longest_lines(path: Path, n: int) -> list[str]:
    """The n longest lines of a text file, the longest first."""
    lines = path.read_text().split‸


if __name__ == "__main__":
    for line in longest_lines(Path("README.md"), 3):
        print(line)
`,
  javascript: `const userName = "Ada";
const greeting = (name) => \`Hello, \${name}!\`;

console.log(greeting(userNa‸
`,
  typescript: `interface Item {
  name: string;
  price: number;
  count: number;
}

export function total(items: Item[]): number {
  return items.reduce((sum, item) => ‸
}
`,
  go: `package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Sc‸
}
`,
  rust: `use std::collections::HashMap;

fn count_words(text: &str) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for word in text.split_wh‸
    counts
}
`,
  c: `#include <stdio.h>
#include <string.h>

static void reverse(char *text) {
    size_t n = strl‸
}
`,
  cpp: `#include <algorithm>
#include <vector>

double median(std::vector<double> values) {
    std::sort(values.be‸
}
`,
  java: `import java.util.List;

class Totals {
    static int sum(List<Integer> values) {
        int total = 0;
        for (int value : val‸
        return total;
    }
}
`,
  csharp: `using System.Linq;

static class Totals
{
    public static int Sum(int[] values) => values.Wh‸
}
`,
  ruby: `def longest_lines(path, n)
  File.readlines(path).sort_by‸
end
`,
  shellscript: `#!/usr/bin/env bash
set -euo pipefail

for file in *.txt; do
  lines=$(wc -l < "$fi‸
done
`,
  markdown: `# Release notes

## Added

- A page that shows how the server does‸

## Fixed
`,
};
