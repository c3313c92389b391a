"""A platform with a known truth: proves that the pipeline reports what it was given."""
