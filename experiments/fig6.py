"""Figure 6: a random fraction of the blocks goes back to x(0), as if it had died before the first checkpoint; MLR and LDA.

MLR as in figure 5. LDA has no point to converge to: its criterion is the likelihood, its failure iteration half of the
iterations that this takes, x* the last state of the undisturbed run, the norm the scaled total variation, and c a fit. So the
bound is shown, not claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from experiments import bounds
from experiments.failures import Trials, iterations_until, prepared
from experiments.panels import chosen, title, workload
from experiments.perturbed import Path, Setting, carry_out
from experiments.records import Record
from experiments.runner import Batch, Options, Report
from experiments.simulation import Loss, Saver, State, duplicate, initial, perturbation
from experiments.workloads import Run
from scar import theory

NAME = "fig6"
PANELS = ("mlr-mnist", "lda-reuters")
BATCH = 50
MOST = 4  # times the undisturbed iterations


def batches(options: Options) -> list[Batch]:
    trials = options.trials or (20 if options.quick else 100)
    numbers = [tuple(range(first, min(first + BATCH, trials))) for first in range(0, trials, BATCH)]
    return [Batch(panel, some, _work(options, panel)) for panel in _panels(options) for some in numbers]


def _panels(options: Options) -> tuple[str, ...]:
    return chosen(options.panels, PANELS, ("mlr", "lda"))


def _work(options: Options, panel: str) -> partial[Iterator[Record]]:
    setting = Setting(panel, 20 if options.quick and panel.startswith("mlr-") else 1, options.seed)
    return partial(_topics, setting) if panel.startswith("lda-") else partial(carry_out, setting, _reset)


def _reset(path: Path, random: np.random.Generator) -> State:
    return Saver(path.job, path.state).recover(Loss(float(random.uniform())).draw(path.job, random))


def _topics(setting: Setting, trials: tuple[int, ...]) -> Iterator[Record]:
    """LDA's trials: one trunk, each trial with random numbers of its own and a control that sees the same."""
    model = workload(setting.panel, setting.thin)
    job, wanted = prepared(model, Trials(setting.panel, setting.thin, (), setting.seed, 0, ()))
    epsilon, needed = wanted.epsilon, wanted.undisturbed
    trunk, states = Run(initial(job), stream=job.seed), []
    for _ in range(needed):
        states.append(duplicate(trunk.state))
        model.advance([trunk])
    trace = [perturbation(trunk.state, state) for state in states]
    failed, rate = needed // 2, theory.estimate_rate(trace)
    before = states[failed]
    for number in trials:
        random = np.random.default_rng([setting.seed, number])
        state = Saver(job, before).recover(Loss(float(random.uniform())).draw(job, random))
        norm, stream = perturbation(before, state), int(random.integers(1 << 62))
        ends = [iterations_until(model, Run(one, failed, stream), epsilon, MOST * needed) for one in (state, duplicate(before))]
        bound = theory.iteration_cost(rate, {failed: norm}, trace[0])
        yield {"trial": number, "size": norm / trace[0], "cost": ends[0] - ends[1], "bound": bound, "holds": False}


def report(options: Options, records: Sequence[Record]) -> Report:
    """Costs against ||delta|| / ||x(0) - x*||."""
    shown = {panel: title(panel) for panel in _panels(options)}
    return bounds.report(records, shown, "‖δ‖ / ‖x(0) − x*‖", "A random part goes back to x(0)")
