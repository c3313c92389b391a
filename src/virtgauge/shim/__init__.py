"""Runs an unmodified program with its clock reads and sleeps served by hptime (``native/hptime-preload``)."""
