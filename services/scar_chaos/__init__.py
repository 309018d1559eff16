"""Chaos: seeded faults against a cluster that trains, and a verdict by the checkers of the guarantees.

The pure part: what happens (``faults``, ``schedule``), what was written down (``history``), what must hold (``checkers``,
``verdict``), and what it cost (``measures``). The thin part: where it happens (``targets``, ``local``, ``kube``), and the
workload that runs in the workers (``workload``), which tells the ``recorder`` of every push before it sends it.
"""
