"""What is measured, one suite a file."""
