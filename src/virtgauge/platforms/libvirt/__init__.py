"""Guests through libvirt: one driver of ours for the hypervisors that it speaks to."""
