"""Peers on another machine: agents that help to measure there, joined by wires with the laboratory here."""
