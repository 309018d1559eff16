"""Which release is meant. Without the package ``kubernetes``, so that a command line can be read without
it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Where:
    """What a person says about the release that is meant; empty: the current context, its namespace, the
    only release there.
    """

    context: str = ""
    namespace: str = ""
    release: str = ""

    def options(self) -> str:
        """As command line options, for hints."""
        given = {"context": self.context, "namespace": self.namespace, "release": self.release}
        return " ".join(["--on kubernetes", *(f"--{name} {value}" for name, value in given.items() if value)])
