"""Chaos: seeded faults against a cluster that trains, and a verdict by the checkers of the guarantees.

``core``: what happens (faults, schedules, the job that counts), pure. ``oracles``: what was written down,
what must hold, and what it cost, pure. ``targets``: where things break, on this machine or on Kubernetes. In
between: ``runner`` runs schedules, ``inject`` injects their faults into a ``chaos_run``, whose workers run
the ``workload`` and tell the ``recorder`` of every push before they send it.
"""
