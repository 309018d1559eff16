"""What has to be there for every kind of object store, beside its module."""

from __future__ import annotations

import pytest

from scar_cli.extras import MODULES
from scar_runtime.process.config import ServiceSettings, load_settings
from scar_runtime.store.schemes import SCHEMES, StoreScheme, is_credential


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_it_can_be_configured_and_its_packages_come_with_an_extra(scheme: StoreScheme) -> None:
    assert load_settings(ServiceSettings, ["--store", scheme.example]).store == scheme.example
    assert set(scheme.packages) <= set(MODULES["cli"])


def test_credentials_are_known_by_their_names() -> None:
    assert is_credential("AWS_ACCESS_KEY_ID")
    assert not is_credential("SCAR_STORE")
    assert not is_credential("AWS_CA_BUNDLE")  # a file that is nowhere else
