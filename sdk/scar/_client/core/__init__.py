"""What the client decides, pure: no threads, locks, clocks, I/O or protobuf."""
