"""The ``scar`` command: start, train, look, break, repair, read checkpoints."""
