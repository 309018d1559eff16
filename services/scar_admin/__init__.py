"""A cluster as it looks from outside: its status, and what its training waits for."""
