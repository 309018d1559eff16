"""A process of a service: boot, settings, logs, metrics, the gRPC server, signals."""
