"""Blocks that keep their places in memory, and copies that are made before their moment."""

from __future__ import annotations

from scripts.breaks.kind import Break

ARRAYS = "services/scar_ps/core/block_arrays.py"
MEMORY = "services/scar_ps/core/block_memory.py"
STORE = "services/scar_ps/core/block_store.py"
SYNC = "services/scar_ps/epoch_sync.py"
SNAPSHOT = "services/scar_ps/core/block_snapshot.py"
ROUND = "services/scar_ps/core/checkpoint_round.py"
PLACES = "tests/unit/test_block_memory.py"
TWINS = f"{PLACES}::test_blocks_that_keep_their_places_are_as_those_that_are_copied"
AGAIN = f"{PLACES}::test_a_place_is_given_again_once_nobody_reads_what_had_it"

BREAKS = (
    Break(
        "ps-epoch-memory",  # a thread that waits for the kernel's pages looks as if it hung
        SYNC,
        "memories = self._prepare_memories(epoch, job)",
        "memories = {}",
        "tests/component/test_epoch_memory.py::test_the_apply_thread_moves_while_an_epoch_waits_for_memory",
    ),
    Break(
        "ps-old-reader",  # a store before the last one is read
        MEMORY,
        "        self._next = successor\n",
        "",
        AGAIN,
    ),
    Break(
        "ps-places-lost",  # memory grows with each epoch
        MEMORY,
        "            self._released.append(self._gone)\n",
        "            pass\n",
        AGAIN,
    ),
    Break(
        "ps-touched-again",  # and that of places that are free
        MEMORY,
        "max(0, count - len(self._free) - sum(map(len, list(self.released))))",
        "count",
        f"{PLACES}::test_only_what_nobody_has_written_to_is_touched",
    ),
    Break(
        "ps-stale-slots",  # what was at a place before
        STORE,
        "installed = np.zeros(layout.count_elements(positions), slot.dtype)",
        "continue",
        TWINS,
    ),
    Break(
        "ps-short-block",  # of a table whose last block has fewer rows
        MEMORY,
        "return len(positions) - bool(short)",
        "return len(positions)",
        TWINS,
    ),
    Break(
        "ps-long-block",  # a last block that is longer than the others does not fit into a place
        MEMORY,
        "int(counts.sizes[-1]) < most and not",
        "not",
        TWINS,
    ),
    Break(
        "ps-frozen-slots",  # a frozen store's slots are where its values were
        STORE,
        "            frozen.slots = dict(packed.slots)\n",
        "",
        f"{PLACES}::test_a_copy_of_such_blocks_is_of_its_moment",
    ),
    Break(
        "ps-torn-piece",  # a push changes what is being copied
        SNAPSHOT,
        "inside = (packed >= self._span[0]) & (packed < self._span[1])",
        "inside = packed < 0",
        "tests/component/test_round_copy.py"
        "::test_pushes_go_on_while_a_piece_is_copied_and_it_has_none_of_them",
    ),
    Break(
        "ps-piece-held",  # the piece is copied on the thread that applies pushes
        "services/scar_ps/core/rounds.py",
        "return self._state.round.next_piece(event.copied)",
        "piece = self._state.round.next_piece(event.copied); piece and piece.copy(); return piece",
        "tests/component/test_round_copy.py"
        "::test_pushes_go_on_while_a_piece_is_copied_and_it_has_none_of_them",
    ),
    Break(
        "ps-copy-stale",  # what froze after a round's copy was made
        ROUND,
        "[one] if one.is_current() else renew_snapshot(one)",
        "[one]",
        "tests/unit/test_ps_checkpoint_round.py::test_frozen_blocks_are_not_saved",
    ),
)
