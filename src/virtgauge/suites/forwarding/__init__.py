"""Forwarding: what N virtual routers on one machine carry without loss, and how long a frame takes through them."""
