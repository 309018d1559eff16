"""All targets of the fuzzer."""

from __future__ import annotations

from tests.fuzz import file_targets, store_targets, stream_targets, wire_targets

TARGETS = {
    target.name: target
    for module in (wire_targets, stream_targets, store_targets, file_targets)
    for target in module.TARGETS
}
