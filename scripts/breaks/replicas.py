"""Breaks of copies of blocks at other shards (docs/protocol.md §11)."""

from __future__ import annotations

from scripts.breaks.kind import Break

PS_REPLICATION = "tests/unit/test_ps_replication.py"
PS_REPLICA_STORE = "tests/unit/test_ps_replica_store.py"
CUT_STREAMS = "tests/unit/test_cut_streams.py::test_no_part_of_a_stream_is_taken_for_the_whole"

BREAKS = (
    Break(
        "ps-chain-replay",
        "services/scar_ps/core/ownership.py",
        'if job.consistency == "bsp" and restored',
        "if job.strategy.asks_workers and restored",
        "tests/unit/test_ps_replay.py::test_a_block_that_comes_back_is_what_it_would_have_been",
    ),
    Break(
        "ps-told",
        "services/scar_ps/core/pushes.py",
        "if state.announced_clock < event.min_clock:",
        "if state.clock < event.min_clock:",
        f"{PS_REPLICATION}::test_nobody_hears_of_a_clock_that_the_next_replica_lacks",
    ),
    Break(
        "ps-owed",
        "services/scar_ps/core/replication_chain.py",
        "return updates - updates % self._strategy.period",
        "return updates - 1",
        f"{PS_REPLICATION}::test_a_copy_has_values_slots_steps_and_watermark",
    ),
    Break(
        "ps-neighbour",
        "services/scar_ps/core/replication_chain.py",
        "if former[:1] != self._members[:1]:",
        "if not former:",
        f"{PS_REPLICATION}::test_a_new_neighbour_gets_everything",
    ),
    Break(
        "ps-ship-unsettled",
        "services/scar_ps/core/replication_chain.py",
        "ready: Mask = ~store.unsettled & (store.loading == 0)",
        "ready: Mask = store.loading == 0",
        f"{PS_REPLICATION}::test_unsettled_blocks_do_not_go",
    ),
    Break(
        "ps-replica-gap",
        "services/scar_ps/core/replica_store.py",
        "batch.since != have)",
        "batch.since < have)",
        f"{PS_REPLICA_STORE}::test_a_batch_after_one_that_never_came_is_refused",
    ),
    Break(
        "ps-release",
        "services/scar_ps/core/replica_store.py",
        'but=owner if mine else "")',
        "but=owner)",
        f"{PS_REPLICA_STORE}::test_who_is_no_part_of_the_chain_any_more_keeps_nothing",
    ),
    Break(
        "ps-newer-copies",  # a copy with pushes that an epoch had given up stayed, and was claimed
        "services/scar_ps/core/replica_store.py",
        "            if group.source is not BlockSource.DONOR:\n                self._drop_newer(group)\n",
        "            pass\n",
        f"{PS_REPLICA_STORE}::test_a_copy_with_more_than_what_was_put_back_is_dropped",
    ),
    Break(
        "ps-detached-copies",  # a copy of a block seemed to contain what its former owner was told later
        "services/scar_ps/core/replica_store.py",
        "            if len(rest):\n",
        "            if False:\n",
        f"{PS_REPLICA_STORE}::test_later_batches_say_nothing_of_blocks_that_their_owner_does_not_send",
    ),
    Break(
        "ps-detached-copies",  # blocks that are put back at their owner are not in its batches either
        "services/scar_ps/core/replica_store.py",
        "np.concatenate([ids[:0], *moved.get(table, [])])",
        "ids[:0]",
        f"{PS_REPLICA_STORE}::test_later_batches_say_nothing_of_blocks_that_their_owner_does_not_send",
    ),
    Break(
        "ps-cut-stream",  # of a process that is killed: it may end as if it were whole
        "sdk/scar/wire/tensor_reader.py",
        "if self._announced and self._opened != self._announced:",
        "if False:",
        CUT_STREAMS,
    ),
    Break(
        "ps-cut-push",
        "sdk/scar/_client/push_stream.py",
        "            tensors=len(tables),\n",
        "",
        CUT_STREAMS,
    ),
    Break(
        "ps-cut-ship",
        "services/scar_ps/wire/replication_stream.py",
        "                tensors=sum(map(len, contents)),\n",
        "",
        CUT_STREAMS,
    ),
    Break(
        "ps-cut-restore",
        "sdk/scar/_client/copy_sender.py",
        "            tensors=len(parts),\n",
        "",
        CUT_STREAMS,
    ),
)
