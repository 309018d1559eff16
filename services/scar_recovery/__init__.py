"""Recovery coordinator: the only writer of epochs."""
