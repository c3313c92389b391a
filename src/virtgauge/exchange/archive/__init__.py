"""Many runs as partitioned Parquet in a folder or an object store, and queries that do not load them all."""
