"""What the recovery coordinator decides, pure: no threads, locks, clocks, I/O or protobuf."""
