"""The settings that a cluster's processes get."""

from __future__ import annotations

from pathlib import Path

from scar_local.specs import ProcessSettings


def test_given_variables_win_over_the_clusters_own() -> None:
    given = {"SCAR_STORE": "s3://mine", "SCAR_RECOVERY": "elsewhere:1", "SCAR_LISTEN": "any:7", "OWN": "1"}
    settings = ProcessSettings(Path("/cluster"), "label", "redis://r", "file:///s", given)
    assert settings.variables("ps-0", {"recovery": "here:1", "detector": "here:2"}, "shard") == {
        "SCAR_NAME": "ps-0",
        "SCAR_CLUSTER": "label",
        "SCAR_REDIS": "redis://r",
        "SCAR_DETECTOR": "here:2",
        "SCAR_TLS_CERT": "",
        "SCAR_TLS_KEY": "",
        "SCAR_TLS_CA": "",
        "SCAR_TOKEN_FILE": "/cluster/token",
        **given,
    }
