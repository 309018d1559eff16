"""Breaks of hot blocks that change places, and of members that nobody can call (protocol §7, §8)."""

from __future__ import annotations

from scripts.breaks.kind import Break

HOT_BLOCKS = "tests/unit/test_hot_blocks.py"
MOVES = "tests/unit/test_traffic_moves.py"
SHARD_TRAFFIC = "tests/unit/test_shard_traffic.py"
UNADDRESSED = "tests/unit/test_unaddressed_members.py"

BREAKS = (
    Break(
        "traffic-one-way",  # what shards hold is level no more, and levelling it takes all back
        "services/scar_recovery/core/hot_blocks.py",
        "        transfers.append(Transfer(epoch.shards[cool], epoch.shards[hot], back))\n",
        "",
        f"{HOT_BLOCKS}::test_traffic_becomes_level_or_stays_as_it_is_and_nothing_goes_there_and_back",
    ),
    Break(
        "traffic-little-gain",
        "services/scar_recovery/core/hot_blocks.py",
        "if after.max() <= (1 - GAIN) * rates.max() else ()",
        "if after.max() < rates.max() else ()",
        f"{HOT_BLOCKS}::test_traffic_becomes_level_or_stays_as_it_is_and_nothing_goes_there_and_back",
    ),
    Break(
        "traffic-too-hot",  # the quiet shard is the busy one then
        "services/scar_recovery/core/hot_blocks.py",
        "    hottest = hottest[given.rates[hottest] - taken.rates[coldest[:1]].sum() <= excess]\n",
        "",
        f"{HOT_BLOCKS}::test_a_block_that_is_too_hot_stays_and_others_go",
    ),
    Break(
        "traffic-of-others",
        "services/scar_recovery/core/hot_blocks.py",
        "== epoch.shard_index(traffic.shard)",
        ">= 0",
        f"{HOT_BLOCKS}::test_what_a_shard_says_of_blocks_that_it_does_not_own_is_not_believed",
    ),
    Break(
        "traffic-other-sizes",
        "services/scar_recovery/core/hot_blocks.py",
        " & (sizes.max(axis=0) <= ALIKE * sizes.min(axis=0))",
        "",
        f"{HOT_BLOCKS}::test_ragged_blocks_change_places_with_some_of_their_size",
    ),
    Break(
        "traffic-useless",
        "services/scar_recovery/core/traffic_watch.py",
        "            self._useless = min(self._useless + 1, USELESS_MOST)\n",
        "            pass\n",
        f"{MOVES}::test_exchanges_that_are_of_no_use_become_rare",
    ),
    Break(
        "traffic-no-rest",
        "services/scar_recovery/core/traffic_watch.py",
        "max(self._rest_until, now + REST * moved_for)",
        "self._rest_until",
        f"{MOVES}::test_after_an_exchange_training_has_time_for_itself",
    ),
    Break(
        "traffic-stale",
        "services/scar_recovery/core/traffic_watch.py",
        "        self._next = NEVER\n        self._answer = ()\n",
        "        self._next = NEVER\n",
        f"{MOVES}::test_an_answer_that_came_before_an_epoch_is_not_used_after_it",
    ),
    Break(
        "traffic-older",
        "services/scar_recovery/core/live_moves.py",
        "        elif event.number != epoch:\n            return\n",
        "",
        f"{MOVES}::test_an_answer_about_an_older_epoch_is_not_used",
    ),
    Break(
        "traffic-cause",
        "services/scar_recovery/core/next_epoch.py",
        'return "traffic" if pending.levels_traffic else "join"',
        'return "join"',
        f"{MOVES}::test_it_looks_again_and_again_and_moves_what_is_hot",
    ),
    Break(
        "traffic-kept",  # of blocks that have another place now
        "services/scar_ps/core/epochs.py",
        "        state.traffic.begin(state.ownership.tables, state.now)\n",
        "",
        f"{SHARD_TRAFFIC}::test_it_begins_anew_with_an_epoch",
    ),
    Break(
        "traffic-duplicates",
        "services/scar_ps/core/pushes.py",
        "        state.traffic.count(push.parts.values())\n",
        "",
        f"{SHARD_TRAFFIC}::test_the_sum_is_exact",
    ),
    Break(
        "traffic-unscaled",
        "services/scar_ps/core/traffic.py",
        "amounts[chosen] * (self._bytes / total)",
        "amounts[chosen]",
        f"{SHARD_TRAFFIC}::test_blocks_have_their_share_of_it",
    ),
    Break(
        "traffic-for-ever",
        "services/scar_ps/core/traffic.py",
        "        if seconds > HALVED_AFTER:\n",
        "        if False:\n",
        f"{SHARD_TRAFFIC}::test_the_past_counts_less_and_less",
    ),
    Break(
        "traffic-no-number",
        "services/scar_recovery/shard_client.py",
        "        if not (np.isfinite(amounts) & (amounts >= 0)).all():\n",
        "        if False:\n",
        f"{SHARD_TRAFFIC}::test_impossible_traffic_is_refused",
    ),
    Break(
        "unaddressed-probed",  # a new leader takes every worker of the SDK for dead
        "services/scar_recovery/shard_client.py",
        "        if not member.address:\n            return self._unaddressed.is_alive(member.key)\n",
        "",
        "tests/component/test_remote_shards.py::test_who_has_no_address_lives_by_its_own_signs",
    ),
    Break(
        "unaddressed-hung-up",
        "services/scar_recovery/unaddressed_members.py",
        "recent or any(call.is_active() for call in calls)",
        "bool(calls)",
        f"{UNADDRESSED}::test_who_waits_for_news_lives_until_its_call_ends",
    ),
    Break(
        "unaddressed-old-beat",
        "services/scar_recovery/unaddressed_members.py",
        "if count != first or count is None:",
        "if count != 0:",
        f"{UNADDRESSED}::test_who_sends_heartbeats_lives",
    ),
    Break(
        "unaddressed-unwatched",
        "services/scar_recovery/executor.py",
        "        members = [member for member in members if self.shards.is_watched(member)]\n",
        "",
        "tests/component/test_workers_without_address.py::test_a_new_leader_suspects_nobody_who_was_never_watched",
    ),
    Break(
        "unaddressed-missing",
        "services/scar_recovery/leader_session.py",
        "        self._report_missing()\n",
        "",
        "tests/component/test_workers_without_address.py::test_who_does_not_call_again_is_dead",
    ),
    Break(
        "unaddressed-anybody",  # who calls is not who it says
        "services/scar_recovery/servicer.py",
        "        session.members.check_secret(worker, request.secret)\n        return session.unaddressed",
        "        return session.unaddressed",
        "tests/component/test_member_secrets.py::test_who_does_not_show_the_secret_is_not_that_member",
    ),
)
