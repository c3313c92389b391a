"""Machines that exist already: reached by ssh, or dialling in by themselves."""
