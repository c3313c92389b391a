"""Hosts as a factor: what each host of a fleet found, and whether they found the same."""
