"""What a shard decides, pure: no threads, locks, clocks, I/O or protobuf."""
