"""Figure 6: a random fraction of the blocks goes back to x(0), for MLR and LDA.

As if they had died before the first checkpoint.

MLR as in figure 5. LDA has no point to converge to: its criterion is the likelihood, its failure iteration
half of the iterations that this takes, x* the last state of the undisturbed run, the norm the scaled total
variation, and c a fit. So the bound is shown, not claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from experiments import bounds
from experiments.convergence import iterations_until
from experiments.panels import chosen_panels, load_workload, panel_title
from experiments.perturbation import PerturbationSetting, UndisturbedPath, run_perturbed
from experiments.recovery_trials import TrajectoryTrials, prepare_job
from experiments.simulation import (
    BlockLoss,
    CheckpointSimulator,
    ModelState,
    copy_state,
    initial_state,
    perturbation_norm,
)
from experiments.workloads import TrainingRun, Workload
from scar import theory
from scar.tables import Job
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.records import TrialRecord
from scar_compare.trial_plans import recorded_as

NAME = "fig6"
PANELS = ("mlr-mnist", "lda-reuters")
BATCH = 50
MOST = 4  # times the undisturbed iterations


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    trials = options.trials or (20 if options.quick else 100)
    numbers = [tuple(range(first, min(first + BATCH, trials))) for first in range(0, trials, BATCH)]
    return [
        TrialBatch(panel, some, _panel_work(options, panel))
        for panel in _wanted_panels(options)
        for some in numbers
    ]


def _wanted_panels(options: ExperimentOptions) -> tuple[str, ...]:
    return chosen_panels(options.panels, PANELS, ("mlr", "lda"))


def _panel_work(options: ExperimentOptions, panel: str) -> partial[Iterator[TrialRecord]]:
    setting = PerturbationSetting(
        panel, 20 if options.quick and panel.startswith("mlr-") else 1, options.seed
    )
    return (
        partial(_run_topic_trials, setting)
        if panel.startswith("lda-")
        else partial(run_perturbed, setting, _reset_blocks)
    )


@recorded_as("_reset")
def _reset_blocks(path: UndisturbedPath, random: np.random.Generator) -> ModelState:
    return _lose_random_part(path.job, path.state, random)


def _lose_random_part(job: Job, state: ModelState, random: np.random.Generator) -> ModelState:
    """A random fraction of the blocks goes back to x(0): nothing was ever saved."""
    lost = BlockLoss(float(random.uniform())).draw_lost(job, random)
    return CheckpointSimulator(job, state).recover_lost(lost)


@recorded_as("_topics")
def _run_topic_trials(setting: PerturbationSetting, trials: tuple[int, ...]) -> Iterator[TrialRecord]:
    """LDA's trials: one trunk, each trial with random numbers of its own and a control that sees the same."""
    model = load_workload(setting.panel, setting.thin)
    job, wanted = prepare_job(model, TrajectoryTrials(setting.panel, setting.thin, (), setting.seed, 0, ()))
    needed = wanted.undisturbed
    failed = needed // 2
    trace, before = _undisturbed_trace(model, job, needed)
    rate = theory.estimate_rate(trace)
    for number in trials:
        random = np.random.default_rng([setting.seed, number])
        state = _lose_random_part(job, before, random)
        norm = perturbation_norm(before, state)
        stream = int(random.integers(1 << 62))
        perturbed, control = (
            iterations_until(model, TrainingRun(one, failed, stream), wanted.epsilon, MOST * needed)
            for one in (state, copy_state(before))
        )
        yield {
            "trial": number,
            "size": norm / trace[0],
            "cost": perturbed - control,
            "bound": theory.iteration_cost(rate, {failed: norm}, trace[0]),
            "holds": False,
        }


def _undisturbed_trace(model: Workload, job: Job, needed: int) -> tuple[list[float], ModelState]:
    """Distances of the undisturbed run from its last state, and the state half way."""
    trunk = TrainingRun(initial_state(job), stream=job.seed)
    states = []
    for _ in range(needed):
        states.append(copy_state(trunk.state))
        model.advance_runs([trunk])
    return [perturbation_norm(trunk.state, state) for state in states], states[needed // 2]


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """Costs against ||delta|| / ||x(0) - x*||."""
    shown = {panel: panel_title(panel) for panel in _wanted_panels(options)}
    return bounds.bounds_report(records, shown, "‖δ‖ / ‖x(0) − x*‖", "A random part goes back to x(0)")
