"""The one version of everything in this repository."""

__version__ = "0.1.0"
