"""The failure detector: who is alive, who is suspected, and who is reported to the recovery coordinator."""
