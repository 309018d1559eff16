"""A small parameter server and recovery coordinator over real gRPC, for tests of the SDK alone."""
