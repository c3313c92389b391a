"""Two runs or more side by side: what changed, what did not, and since when."""
