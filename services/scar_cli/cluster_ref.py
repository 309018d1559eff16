"""What the command line says about the cluster that is meant; light, since every command loads it."""

from __future__ import annotations

from dataclasses import dataclass

from scar_kube.where import Where


@dataclass(frozen=True)
class ClusterRef:
    """What the command line says. ``release``: one on Kubernetes; then the others do not count."""

    cluster: str = "local"
    recovery: str = ""
    release: Where | None = None

    def options(self) -> str:
        """The same again as options, for hints; begins with a space."""
        if self.release is not None:
            return f" {self.release.options()}"
        if self.recovery:
            return f" --recovery {self.recovery}"
        return "" if self.cluster == "local" else f" --cluster {self.cluster}"
