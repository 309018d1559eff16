"""The four models of the paper as trainings of one process: tables, and one iteration of one or many copies.

An *iteration* is what the paper leaves open; docs/experiments.md says why it is this: MLR, MF, LDA: one pass
over the data; CNN: ten mini-batches. Updates go through the tables' rules, as they do on a shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import scar
from experiments.simulation import ModelState, no_progress
from scar.models import cnn, lda, mf, mlr
from scar.paper_datasets import Labelled
from scar_ps.core import update_rules
from scar_ps.core.update_rules import apply_push

MINIBATCH = 64
MINIBATCHES = 10
SEEN = 1000  # training images on which the network's loss is measured
SHARDS_OF_A_LAYER = 8
RIDGE = 0.1


@dataclass(eq=False)
class TrainingRun:
    """One copy of a model in training.

    ``clock`` iterations are done; ``stream`` says which random numbers it sees.
    """

    state: ModelState
    clock: int = 0
    stream: int = 0

    def random_numbers(self) -> np.random.Generator:
        """Numbers of the iteration that comes next: the same for every run with this stream and clock."""
        return np.random.Generator(np.random.Philox(key=np.array([self.stream, self.clock], np.uint64)))


class Workload(Protocol):
    """A model, its data, and what one iteration does.

    ``together``: how many runs are best advanced at once. ``random``: whether iterations draw random
    numbers.
    """

    job: scar.Job
    together: int
    random: bool

    def advance_runs(self, runs: Sequence[TrainingRun]) -> list[float]:
        """One iteration of each run, in place; returns their losses."""
        ...


class Regression:
    """MLR by mini-batch gradient descent in a fixed order.

    Its loss is summed over the pass, each batch before its update.
    """

    together = 128
    random = False

    def __init__(self, data: Labelled, batch: int, rate: float) -> None:
        shape = data.x.shape[1], data.classes
        self.job = scar.Job("mlr", [scar.Table("w", shape, rule=scar.sgd(lr=rate))])
        self.data = data
        self.batch = batch

    def advance_runs(self, runs: Sequence[TrainingRun]) -> list[float]:
        table = self.job.table("w")
        losses = np.zeros(len(runs))
        w = np.stack([_table_array(run, "w") for run in runs], axis=-1)
        for start in range(0, len(self.data.y), self.batch):
            part = slice(start, start + self.batch)
            found, gradients = mlr.losses_and_gradients(w, self.data.x[part], self.data.y[part])
            losses += found
            update_rules.apply_step(table.rule, w, gradients, {})
        for index, run in enumerate(runs):
            run.state["w"].values[:] = w[..., index].reshape(-1)
            run.clock += 1
        return losses.tolist()


class Factorisation:
    """MF by sweeps of ALS: first the users from the items, then the items from the users."""

    together = 1
    random = False

    def __init__(self, ratings: mf.Ratings, factors: int) -> None:
        sides = zip(("left", "right"), ratings.shape, (ratings.by_row, ratings.by_column), strict=True)
        entries = scar.uniform(0.0, 1.0)
        tables = [
            scar.Table(name, (count, factors), rule=scar.assign(), init=entries, weights=known.weights)
            for name, count, known in sides
        ]
        self.job = scar.Job("mf", tables)
        self.ratings = ratings

    def advance_runs(self, runs: Sequence[TrainingRun]) -> list[float]:
        return [self._run_sweep(run) for run in runs]

    def _run_sweep(self, run: TrainingRun) -> float:
        left, right = (_table_array(run, name) for name in ("left", "right"))
        users = np.empty_like(left)
        items = np.empty_like(right)
        mf.solve(self.ratings.by_row, right, RIDGE, users)
        apply_push(run.state["left"], None, users.reshape(-1), no_progress)
        explained = mf.solve(self.ratings.by_column, left, RIDGE, items)
        apply_push(run.state["right"], None, items.reshape(-1), no_progress)
        run.clock += 1
        return mf.objective(self.ratings, explained, left, RIDGE)


class TopicModel:
    """LDA: a sweep of the sampler.

    A document's tokens are one block; the counts of words are made again in each sweep.
    """

    together = 1
    random = True

    def __init__(self, corpus: lda.Corpus, topics: int) -> None:
        table = scar.Table(
            "topics",
            (corpus.tokens,),
            dtype="int32",
            rule=scar.assign(),
            init=scar.uniform(0, topics),
            blocks=scar.ragged(corpus.offsets.tolist()),
            norm="histogram",
        )
        self.job = scar.Job("lda", [table])
        self.corpus = corpus
        self.topics = topics

    def advance_runs(self, runs: Sequence[TrainingRun]) -> list[float]:
        return [self._run_sweep(run) for run in runs]

    def _run_sweep(self, run: TrainingRun) -> float:
        corpus = self.corpus
        topics = _table_array(run, "topics")
        counts = lda.word_topics(corpus.words, topics, corpus.vocabulary, self.topics)
        apply_push(
            run.state["topics"],
            None,
            lda.sweep(corpus, slice(None), topics, counts, run.random_numbers()),
            no_progress,
        )
        run.clock += 1
        return lda.negative_log_likelihood(corpus, topics, self.topics)


class Network:
    """The CNN with Adam.

    ``shards``: False: a block is a whole weight or bias (by layer); True: a shard of one.
    """

    together = 1
    random = True

    def __init__(self, data: Labelled, shards: bool) -> None:
        blocks = scar.layer_shards(SHARDS_OF_A_LAYER) if shards else scar.layer()
        tables = [
            scar.Table(
                name, shape, rule=scar.adam(), init=scar.normal(0.0, cnn.deviation(name)), blocks=blocks
            )
            for name, shape in cnn.SHAPES.items()
        ]
        self.job = scar.Job("cnn", tables)
        self.data = data

    def advance_runs(self, runs: Sequence[TrainingRun]) -> list[float]:
        return [self._train_minibatches(run) for run in runs]

    def _train_minibatches(self, run: TrainingRun) -> float:
        picked = run.random_numbers().integers(0, len(self.data.y), (MINIBATCHES, MINIBATCH))
        parameters = {name: _table_array(run, name) for name in cnn.SHAPES}
        for batch in picked:
            _, gradients = cnn.loss_and_gradients(parameters, self.data.x[batch], self.data.y[batch])
            for name, gradient in gradients.items():
                apply_push(run.state[name], None, gradient.reshape(-1), no_progress)
        run.clock += 1
        return cnn.loss(parameters, self.data.x[:SEEN], self.data.y[:SEEN])


def _table_array(run: TrainingRun, table: str) -> Any:
    """The values of a table in its shape; the memory is the table's own."""
    store = run.state[table]
    return store.values.reshape(store.table.shape)
