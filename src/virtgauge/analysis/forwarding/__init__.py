"""Formulas of packet forwarding through many virtual routers: loads, latency, line rates, buffers, losses."""
