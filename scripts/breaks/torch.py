"""Breaks of models of PyTorch on SCAR."""

from __future__ import annotations

from scripts.breaks.kind import Break

TESTS = "tests/unit/test_torch_models.py"
EMBEDDINGS = "tests/unit/test_torch_embeddings.py"
GRADIENTS = "tests/unit/test_torch_gradients.py"
PUSH_DTYPE = "tests/unit/test_torch_push_dtype.py"
AHEAD = "tests/unit/test_torch_prefetching.py"
FILES = "tests/unit/test_weight_files.py"

BREAKS = (
    Break(
        "torch-mean",
        "sdk/scar/torch/pulled_model.py",
        "return 1 / self._worker.world_size if weight is None else weight",
        "return 1.0 if weight is None else weight",
        f"{TESTS}::test_two_workers_take_the_steps_of_one_process",
    ),
    Break(
        "torch-stale",
        "sdk/scar/torch/pulled_model.py",
        "        if ids or not self.is_current:\n",
        "        if ids:\n",
        f"{TESTS}::test_two_workers_take_the_steps_of_one_process",
    ),
    Break(
        "torch-buffers",
        "sdk/scar/torch/pulled_model.py",
        "if self._worker.is_leader\n",
        "if not self._worker.is_leader\n",
        f"{TESTS}::test_buffers_are_those_of_the_leader_and_what_is_frozen_comes_once",
    ),
    Break(
        "torch-groups",
        "sdk/scar/torch/model_tables.py",
        "rule if rule and tensor.requires_grad else assign()",
        "rule or assign()",
        f"{TESTS}::test_a_model_becomes_tables_by_the_names_of_its_state_dict",
    ),
    Break(
        "torch-missing",
        "sdk/scar/torch/__init__.py",
        'if error.name != "torch":',
        "if error.name:",
        f"{TESTS}::test_without_torch_it_says_what_to_install_and_the_sdk_needs_none",
    ),
    Break(
        "torch-padding",
        "sdk/scar/torch/embeddings.py",
        "if self._padding is None:",
        "if True:",
        f"{EMBEDDINGS}::test_rows_take_the_steps_of_torchs_sparse_gradients",
    ),
    Break(
        "torch-old-rows",
        "sdk/scar/torch/embeddings.py",
        "return clock == self._worker.clock_number or",
        "return clock >= 0 or",
        f"{EMBEDDINGS}::test_only_the_rows_of_a_batch_are_pulled_and_a_prefetch_is_of_its_clock",
    ),
    Break(
        "torch-all-rows",
        "sdk/scar/torch/pulled_model.py",
        "if name not in self._rows.tables]",
        "]",
        f"{EMBEDDINGS}::test_only_the_rows_of_a_batch_are_pulled_and_a_prefetch_is_of_its_clock",
    ),
    Break(
        "clip-repeats",
        "sdk/scar/torch/worker_optimizer.py",
        "dense + self._rows.sum_gradients()",
        "dense + [rows.grad for rows in self._rows.with_gradients()]",
        f"{GRADIENTS}::test_clipping_is_torchs_of_dense_gradients_and_rows_together",
    ),
    Break(
        "scaler-rows",
        "sdk/scar/torch/worker_optimizer.py",
        "found + self._rows.with_gradients()",
        "found",
        f"{GRADIENTS}::test_a_grad_scaler_unscales_what_is_pushed_and_skips_what_is_not_finite",
    ),
    Break(
        "autocast-old-casts",
        "sdk/scar/torch/model_tables.py",
        "    torch.clear_autocast_cache()",
        "    pass",
        f"{GRADIENTS}::test_autocast_that_is_open_over_clocks_computes_with_what_was_pulled",
    ),
    Break(
        "feedback-forgets",
        "sdk/scar/torch/error_feedback.py",
        "if name in self._lost else values",
        "if not self._lost else values",
        f"{PUSH_DTYPE}::test_what_rounding_takes_comes_with_the_next_push",
    ),
    Break(
        "bfloat16-cuts-off",
        "sdk/scar/bfloat16.py",
        "bits + (0x7FFF + ((bits >> _HALF_BITS) & 1))",
        "bits",
        "tests/unit/test_bfloat16.py::test_it_rounds_as_torch_does",
    ),
    Break(
        "bfloat16-of-sums",
        "sdk/scar/_client/core/pushes.py",
        "return combine_repeats(table, ids, values)",
        "return TablePush(ids, values, short=parts[0].short)",
        "tests/unit/test_bfloat16.py::test_parts_of_a_push_stay_short_and_a_sum_of_several_does_not",
    ),
    Break(
        "sampler-counts-itself",
        "sdk/scar/torch/sampler.py",
        "step = self._worker.clock_number",
        "step = 0",
        "tests/unit/test_batches.py::test_torchs_loader_gets_the_batches_of_the_open_clocks",
    ),
    Break(
        "sampler-short-batch",
        "sdk/scar/batches.py",
        "number * self._examples // self.batches",
        "number * (self._examples // self.batches)",
        "tests/unit/test_batches.py::test_an_epoch_has_every_example_once_though_workers_come_and_go",
    ),
    Break(
        "schedule-of-another-clock",
        "services/scar_ps/core/pushes.py",
        "part.store.table.rule.at_clock(push.clock, push.rate)",
        "part.store.table.rule.at_clock(state.clock, push.rate)",
        "tests/unit/test_schedules.py::test_without_waiting_a_push_has_the_rate_of_its_own_clock",
    ),
    Break(
        "script-sparse",  # embeddings with sparse gradients stay whole parameters
        "sdk/scar/torch/script.py",
        "if type(module) in _BY_ROWS and module.sparse:",
        "if False:",
        "tests/unit/test_torch_script.py::test_a_script_declares_its_model",
    ),
    Break(
        "script-unasked",  # a script that trains nothing is a worker that has finished
        "sdk/scar/scripts.py",
        "    if not asked:\n",
        "    if False:\n",
        "tests/unit/test_scripts.py::test_a_script_that_does_not_ask_again_is_no_finished_worker",
    ),
    Break(
        "file-unknown-names",  # a tensor that no table takes is dropped in silence
        "sdk/scar/weight_files.py",
        "(not unknown or not strict)",
        "True",
        f"{FILES}::test_what_does_not_fit_is_named",
    ),
    Break(
        "file-rounds",
        "sdk/scar/weight_files.py",
        'table.dtype, "safe")',
        'table.dtype, "unsafe")',
        f"{FILES}::test_what_does_not_fit_is_named",
    ),
    Break(
        "file-shared",  # a shared weight is looked for by its first name alone
        "sdk/scar/torch/weight_files.py",
        "max(names, key=lambda name: name in there)",
        "names[0]",
        "tests/unit/test_torch_weight_files.py::"
        "test_a_model_of_safetensors_own_comes_back_though_a_weight_is_shared",
    ),
    Break(
        "ahead-of-old-placement",  # values that a recovery has taken back are used
        "sdk/scar/torch/pulled_model.py",
        "if ahead is None or ahead.epoch != self._worker.epoch:",
        "if ahead is None:",
        f"{AHEAD}::test_what_is_of_another_placement_or_another_batch_is_pulled_again",
    ),
    Break(
        "ahead-under-bsp",
        "sdk/scar/torch/pulled_model.py",
        'if self._worker.job.consistency == "bsp" else',
        "if False else",
        f"{AHEAD}::test_under_bsp_nothing_is_pulled_before_its_clock_and_steps_are_the_same",
    ),
    Break(
        "ahead-of-other-rows",
        "sdk/scar/torch/pulled_model.py",
        "ahead.ids.keys() != ids.keys() or not all(",
        "False and not all(",
        f"{AHEAD}::test_what_is_of_another_placement_or_another_batch_is_pulled_again",
    ),
    Break(
        "ahead-forgets-a-rollback",  # a clock counts whose values were taken back
        "sdk/scar/_client/core/clocks.py",
        "if self.pulled >= self.finished:",
        "if self.pulled == self.finished:",
        "tests/unit/test_client_pulls.py::test_a_rollback_voids_the_open_clock_though_the_next_is_pulled",
    ),
)
