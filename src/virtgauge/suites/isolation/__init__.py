"""Performance isolation: what a noisy neighbour costs, and what a policy saves (Rzecki et al. 2014)."""
