"""Between a shard's messages and its blocks: pushes in, pulls out, moves and replicas both ways."""
