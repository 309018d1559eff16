"""Heartbeats, progress and leader leases, with Redis behind them."""
