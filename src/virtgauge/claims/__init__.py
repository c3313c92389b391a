"""What papers conclude, as data, and one engine that tests it on their own tables and on a run alike."""
