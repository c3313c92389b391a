"""A page on this machine that shows runs as they happen and their reports; reads only."""
