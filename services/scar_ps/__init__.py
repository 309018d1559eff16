"""Parameter server shard: holds blocks, applies pushes, saves what changed most, moves blocks live."""
