"""What the recovery coordinator counts and times, beside what every service does."""

from prometheus_client import Counter, Histogram

EPOCHS = Counter("scar_recovery_epochs", "Epochs created, by cause", ["cause"])
for cause in ("start", "resume", "join", "leave", "workers", "traffic", "failure", "end"):
    EPOCHS.labels(cause)  # counted from 0, or the first one would be no increase for Prometheus
FAILURES = Counter("scar_recovery_failures", "Members declared dead")
COMMIT_SECONDS = Histogram(
    "scar_recovery_commit_seconds",
    "From the decision until the epoch exists in the store, in seconds",
    buckets=(0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
)
PHASE_SECONDS = Histogram(
    "scar_recovery_phase_seconds",
    "Phases of each recovery as its record in the ledger has them, in seconds; without what nobody measured",
    ["phase"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0),
)
BLOCKS = Counter("scar_recovery_blocks", "Blocks that recoveries brought back, by source", ["source"])
