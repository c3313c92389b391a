"""What shall be measured: the plan and its presets."""
