"""Xen by its own toolstack ``xl``, on this machine as a Xen host."""
