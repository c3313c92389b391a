"""Verdicts on a run's requirements, and ranks, for every form of the report."""
