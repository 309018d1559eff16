"""Settings: defaults, variables, flags, and errors that say what to correct."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import Field

from scar.errors import ConfigError
from scar.placement import Role
from scar.wire.timing import TIMING
from scar_runtime.liveness.heartbeat_store import HeartbeatStore
from scar_runtime.process.app import main, write_address
from scar_runtime.process.config import RedisSettings, ServiceSettings, load_settings, variable


class ExampleSettings(RedisSettings):
    rebalance: bool = Field(True, description="Move blocks when shards join")
    round_timeout_seconds: float = Field(30.0, gt=0, description="Longest round in seconds")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in RedisSettings.model_fields:
        monkeypatch.delenv(f"SCAR_{name.upper()}", raising=False)


def test_defaults() -> None:
    settings = load_settings(ExampleSettings, [])
    assert (settings.listen, settings.redis, settings.lease_seconds) == (
        "127.0.0.1:0",
        "redis://127.0.0.1:6379/0",
        TIMING.lease,
    )
    assert (settings.metrics_port, settings.log_format, settings.rebalance) == (-1, "json", True)
    assert settings.name


def test_a_variable_beats_the_default_and_a_flag_beats_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAR_NAME", "ps-1")
    monkeypatch.setenv("SCAR_LEASE_SECONDS", "3")
    settings = load_settings(
        ExampleSettings, ["--lease-seconds", "4", "--no-rebalance", "--round-timeout-seconds=5"]
    )
    assert (settings.name, settings.lease_seconds, settings.rebalance) == ("ps-1", 4.0, False)
    assert settings.round_timeout_seconds == 5.0


def test_an_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAR_LEASE_SECONDS", "")
    assert load_settings(ExampleSettings, []).lease_seconds == TIMING.lease


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease_seconds", "soon"),
        ("lease_seconds", "0"),
        ("listen", "nowhere"),
        ("recovery", "host"),
        ("redis", "http://host"),
        ("store", "ftp://x"),
        ("name", "a/b"),
        ("metrics_port", "70000"),
        ("log_format", "xml"),
        ("round_timeout_seconds", "-1"),
    ],
)
def test_a_bad_value_names_the_variable_the_flag_and_the_meaning(
    monkeypatch: pytest.MonkeyPatch, field: str, value: str
) -> None:
    monkeypatch.setenv(f"SCAR_{field.upper()}", value)
    with pytest.raises(ConfigError) as caught:
        load_settings(ExampleSettings, [])
    text = str(caught.value)
    assert text.startswith(f"{variable(field)} is {value!r}, but ")
    assert ExampleSettings.model_fields[field].description in text
    assert "\n" not in text


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match="--lease-secondz"):
        load_settings(ExampleSettings, ["--lease-secondz", "3"])


def test_every_setting_is_explained() -> None:
    assert [name for name, field in RedisSettings.model_fields.items() if not field.description] == []


def test_main_prints_one_line_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(
        ServiceSettings, Role.SHARD, lambda app: pytest.fail("it must not be built"), ["--listen", "nowhere"]
    )
    assert code == 2
    assert re.fullmatch(
        r"error: SCAR_LISTEN \(--listen\) is 'nowhere', but it must be host:port\. .*\n",
        capsys.readouterr().err,
    )


def test_the_address_file_is_complete_or_absent(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "ps-0"
    write_address(str(file), "127.0.0.1:5000")
    assert file.read_text() == "127.0.0.1:5000"
    assert [path.name for path in file.parent.iterdir()] == ["ps-0"]
    with pytest.raises(ConfigError, match="SCAR_ADDRESS_FILE"):
        write_address(str(file / "below-a-file"), "127.0.0.1:5000")


def test_a_bad_url_is_shown_without_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(RedisSettings, ["--redis", "http://user:secret@host:1"])
    assert "secret" not in str(caught.value)
    assert "http://host:1" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("secret", ":secret", "rediss//:secret@host:1", "redis:/:secret@host", "http://u:secret@host:1/0"),
        *("redis://:secret@host:port/0", "redis://:secret/more@host:1/0", "redis://:secret#@host:1"),
    ],
)
def test_a_password_in_a_malformed_url_of_redis_is_never_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HeartbeatStore(load_settings(RedisSettings, ["--redis", url]).redis, "cluster")
    assert "secret" not in str(caught.value)
