"""Trials on guests, into the ledger."""
