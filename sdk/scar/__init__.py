"""Training that heals itself: the SDK of SCAR."""
