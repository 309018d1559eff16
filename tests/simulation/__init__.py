"""Deterministic simulation: the services' own code, many processes of it in one, under one seed.

What the machine would decide (which thread runs, when a message arrives, what time it is, what is random) is
decided by a :class:`tests.simulation.scheduler.Scheduler`, so a seed that has failed fails again, step by
step. See docs/adr/016.
"""
