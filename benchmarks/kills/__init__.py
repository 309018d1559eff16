"""The same kills against SCAR, torch DDP, torchft and one process: ``python -m benchmarks.kills --help``."""
