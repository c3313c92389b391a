"""The machine that virtgauge runs on: what it is, how busy it is, and what was made on it."""
