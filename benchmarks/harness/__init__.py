"""What the benchmarks share: streams of tokens, peers, and clocks."""
