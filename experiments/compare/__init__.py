"""``scar compare``: strategies side by side on real processes or pods, with the same seed and the same faults."""
