"""A local page that shows a run as it happens, and finished reports."""
