"""The databases that are measured: where each is found, what its levels of durability are, and how it is started.

One file per database behind :class:`~virtgauge.suites.storage.databases.base.Database`.  Nothing here starts
anything: what a guest has to run is handed out as argument vectors and files.
"""
