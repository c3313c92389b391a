"""Several hosts, on dask.distributed: one exclusive slot per host, one merged ledger.

The unit of work is a batch of the schedule, a fresh testbed with its cells, on the host that it belongs to.  Workers
measure and keep what they measured; the coordinator alone writes the merged ledger, once per trial and attempt.
"""
