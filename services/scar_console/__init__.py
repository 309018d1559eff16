"""The live page of a run: looks at a cluster once for all viewers, and serves it on 127.0.0.1."""
