"""What the terminal shows: progress and tables."""
