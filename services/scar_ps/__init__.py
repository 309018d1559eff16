"""Parameter server shard: holds blocks, applies pushes, saves what changed most, gives and takes blocks live."""
