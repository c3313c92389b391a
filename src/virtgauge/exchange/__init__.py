"""Results in the formats of others, and the results of others as trials."""
