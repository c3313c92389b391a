"""Formulas of the storage suite: what limits a rate, and how much of a ranking is durability."""
