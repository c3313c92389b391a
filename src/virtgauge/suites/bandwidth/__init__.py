"""Available bandwidth: what an estimator inside a guest finds, by which timing, and how far from the counted truth."""
