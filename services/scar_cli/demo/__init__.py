"""The demonstration: the same training three times, twice with half of the parameter servers killed in the middle."""
