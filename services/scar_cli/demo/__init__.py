"""The demonstration: the same training three times, twice with half of the servers killed half way."""
