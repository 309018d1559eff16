"""What a shard counts and times, beside what every service does."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

PUSHES = Counter("scar_ps_pushes", "Pushes that were applied, or kept for their clock")
STALE = Counter("scar_ps_stale", "Requests of an old epoch or of a fenced sender")
DUPLICATES = Counter("scar_ps_duplicates", "Pushes that had been applied before")
APPLY_SECONDS = Histogram(
    "scar_ps_apply_seconds", "Time on the apply thread of a push or a clock, in seconds", buckets=_SECONDS
)
COPY_SECONDS = Histogram(
    "scar_ps_copy_seconds",
    "Longest stall of a shard by the copy of a checkpoint round, in seconds",
    buckets=_SECONDS,
)
CHECKPOINT_AGE = Gauge(
    "scar_checkpoint_age_seconds", "Seconds since this shard's last committed round; -1: none yet"
)
REPLICATED_BYTES = Counter(
    "scar_ps_replicated_bytes", "Values, slots and steps that the next replica has taken"
)
BLOCKS = Gauge("scar_ps_blocks", "Blocks that this shard owns")
CLOCK = Gauge("scar_ps_clock", "Open clock of this shard: so many clocks are closed")
LOSS = Gauge("scar_ps_loss", "Newest loss of all data that this shard knows; NaN: none yet")
LOSS_CLOCK = Gauge("scar_ps_loss_clock", "Clock of scar_ps_loss; -1: none yet")
