"""ChannelCache: stubs are kept as long as their channel, and no longer."""

from __future__ import annotations

import gc
import weakref

from scar.v1 import ps_pb2_grpc, worker_pb2_grpc
from scar_admin.channels import ChannelCache

HERE, THERE = "127.0.0.1:1", "127.0.0.1:2"


def test_a_stub_is_made_once_for_each_channel_and_service() -> None:
    cache = ChannelCache()
    shard = cache.stub_at(ps_pb2_grpc.ShardControlStub, HERE, role="shard")
    assert cache.stub_at(ps_pb2_grpc.ShardControlStub, HERE, role="shard") is shard
    assert isinstance(cache.stub_at(worker_pb2_grpc.WorkerStub, HERE), worker_pb2_grpc.WorkerStub)
    assert cache.stub_at(ps_pb2_grpc.ShardControlStub, THERE, role="shard") is not shard
    cache.close()


def test_it_goes_with_its_channel() -> None:
    cache = ChannelCache()
    gone = weakref.ref(cache.stub_at(worker_pb2_grpc.WorkerStub, HERE))
    kept = cache.stub_at(worker_pb2_grpc.WorkerStub, THERE)
    cache.keep_only({THERE})
    gc.collect()
    assert gone() is None
    assert cache.stub_at(worker_pb2_grpc.WorkerStub, THERE) is kept
    cache.close()
