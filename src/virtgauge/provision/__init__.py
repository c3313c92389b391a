"""What virtgauge needs on a machine beyond itself, fetched and kept in the user's cache.

Debian packages, a guest kernel that is extracted and never installed, and gVisor's ``runsc``.  Each part
has a ``find_…`` that only looks, and a ``provision_…`` that fetches, checks and puts in place; both are
idempotent.  Nothing here knows of platforms, runs or suites.
"""
