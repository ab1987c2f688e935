"""A fleet of engines that developers type at, for `simulate_fleet.py`. Only `simulation` has a
clock; the others are pure.

A *developer* types keys of a *trace*; a *prompt* is what a key asks with, in *blocks* as an
engine's cache has them; a *replica* is one engine with its cache and queue; a *policy* says which
replica a request goes to.
"""
