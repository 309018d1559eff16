"""The settings that a cluster's processes get."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from scar_local.specs import LEAVE_SECONDS, MOST_SECONDS, ProcessSettings, shard


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


def test_a_shard_has_time_to_hand_its_blocks_over_unless_somebody_says_how_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(LEAVE_SECONDS, raising=False)

    def seconds(given: Mapping[str, str], extra: Mapping[str, str]) -> str | None:
        settings = ProcessSettings(Path("/cluster"), "label", "redis://r", "file:///s", given)
        return shard(settings, 0, {}, extra).environment.get(LEAVE_SECONDS)

    assert seconds({}, {}) == MOST_SECONDS
    assert seconds({LEAVE_SECONDS: "5"}, {}) == "5"
    assert seconds({}, {LEAVE_SECONDS: "7"}) == "7"
    monkeypatch.setenv(LEAVE_SECONDS, "9")
    assert seconds({}, {}) is None, "what this process has is inherited"
