"""The one version of everything in this repository."""

__version__ = "0.1.0"

# What members say to each other and read from the store. It counts up when a member of the version before
# would misunderstand one of this version; docs/operations.md has what an upgrade means then.
PROTOCOL = 7
OLDEST_PROTOCOL = 7  # that coordinators of this version still serve
