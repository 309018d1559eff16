"""Models as plain functions of arrays: loss and gradient. They know nothing of servers."""
