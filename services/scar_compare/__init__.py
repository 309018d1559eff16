"""Strategies compared by real trainings (`scar compare`), and how every experiment is run and reported."""
