"""What each suite declares: factors, measures, tables, charts, and the few insights that are really of its domain."""
