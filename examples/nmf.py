"""Non-negative matrix factorisation of MovieLens by projected gradients: a rule of its own on the shards.

The rule is text, which the shards check and evaluate: a step of AdaGrad, then what is below 0 becomes 0.
SCAR_DATA names the folder with movielens/ (docs/datasets.md).

scar train examples/nmf.py --workers 2 &
scar kill ps-1        # its rows come back with their slots, from the running checkpoint
"""

import numpy as np

import scar
from scar import paper_datasets

FACTORS = 10
CLOCKS = 300
known = paper_datasets.ratings("movielens")

projected = scar.rule(
    {"n": "n + g * g", "w": "w - lr * g / (sqrt(n) + eps)"},
    slots=["n"],
    project="maximum(w, 0)",
    lr=0.05,
    eps=1e-8,
)
job = scar.Job(
    "nmf",
    tables=[
        scar.Table(name, (count, FACTORS), rule=projected, init=scar.uniform(0, 1))
        for name, count in zip(("users", "movies"), known.shape, strict=True)
    ],
    shards=4,
    workers=2,
)


def train(worker: scar.Worker) -> None:
    for _ in worker.clocks(limit=CLOCKS):
        part = worker.data_slice(len(known.values))
        rows, columns, values = known.rows[part], known.columns[part], known.values[part]
        factors = worker.pull(["users", "movies"])
        of_users, of_movies = factors["users"][rows], factors["movies"][columns]
        error = np.sum(of_users * of_movies, axis=1) - values
        for name, at, other in (("users", rows, of_movies), ("movies", columns, of_users)):
            gradient = np.zeros_like(factors[name])
            np.add.at(gradient, at, error[:, None] * other)
            worker.push(name, gradient)
        worker.report(float(error @ error) / len(known.values))
