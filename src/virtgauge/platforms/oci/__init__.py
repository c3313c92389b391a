"""Containers by an OCI runtime, and gVisor."""
