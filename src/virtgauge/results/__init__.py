"""What a run found, in columns: the one place that reads trials for reports, verdicts, comparisons and exports."""
