"""Ganger learns how to schedule a computing cluster from that cluster's own workload."""

__version__ = "0.1.0"
