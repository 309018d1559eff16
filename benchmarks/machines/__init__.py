"""Machines with a network between them, as network namespaces of this one: what only then can be measured."""
