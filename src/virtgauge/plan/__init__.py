"""What shall be measured: the plan, its presets, and the order of its trials."""
