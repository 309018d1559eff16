"""Oracles, pure: each takes what was recorded and says whether a guarantee held."""
