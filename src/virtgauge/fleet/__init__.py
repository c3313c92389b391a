"""Several hosts, measured as one run."""
