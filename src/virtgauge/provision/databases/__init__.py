"""Databases for the storage suite, in the user's cache: downloaded with their hashes checked, never installed."""
