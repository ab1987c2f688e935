"""From what a model says to text that a programmer can accept as it is."""
