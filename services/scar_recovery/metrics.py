"""What the recovery coordinator counts and times, beside what every service does."""

from prometheus_client import Counter, Histogram

EPOCHS = Counter("scar_recovery_epochs", "Epochs created, by cause", ["cause"])
FAILURES = Counter("scar_recovery_failures", "Members declared dead")
COMMIT_SECONDS = Histogram(
    "scar_recovery_commit_seconds",
    "From the decision until the epoch exists in the store, in seconds",
    buckets=(0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
)
