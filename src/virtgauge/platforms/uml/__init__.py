"""User Mode Linux: its command line, and what a guest sees of the host."""
