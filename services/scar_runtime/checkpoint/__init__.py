"""The format of the running checkpoint, and which blocks a round saves."""
