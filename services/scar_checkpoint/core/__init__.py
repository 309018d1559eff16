"""What the checkpoint coordinator decides, pure: no threads, locks, clocks, I/O or protobuf."""
