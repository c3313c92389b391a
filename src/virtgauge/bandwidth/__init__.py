"""The native estimator of available bandwidth: where its program is, how it is run, what it answers."""
