"""What the failure detector decides, pure: no threads, locks, clocks, I/O or protobuf."""
