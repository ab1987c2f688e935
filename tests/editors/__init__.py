"""What one does in editors, played in each of them. A package, as a benchmark has its name."""
