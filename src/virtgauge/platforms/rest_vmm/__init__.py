"""Virtual machine monitors that are told by REST over a Unix socket what to run."""
