"""Matrix factorisation of MovieLens by alternating least squares.

Users are solved for from the items, then items from the users.

scar train examples/mf.py --workers 2        (SCAR_DATA names the folder with movielens/: docs/datasets.md)
"""

import numpy as np

import scar
from scar import paper_datasets
from scar.models import mf

FACTORS = 20
RIDGE = 0.1
known = paper_datasets.ratings("movielens")

job = scar.Job(
    "mf",
    tables=[
        # a block per row
        scar.Table(name, (count, FACTORS), rule=scar.assign(), init=scar.uniform(0, 1), weights=side.weights)
        for name, count, side in (
            ("left", known.shape[0], known.by_row),
            ("right", known.shape[1], known.by_column),
        )
    ],
    shards=4,
    workers=2,
)


def train(worker: scar.Worker) -> None:
    for clock in worker.clocks(limit=400):  # two clocks are a sweep
        side, other = ("left", "right") if clock % 2 == 0 else ("right", "left")
        rows = known.by_row if side == "left" else known.by_column
        factors = worker.pull(other)
        share = worker.data_slice(len(rows.starts) - 1)
        solved = np.empty((share.stop - share.start, FACTORS), np.float32)
        explained = mf.solve(rows, factors, RIDGE, solved, share)
        worker.push(side, solved, ids=np.arange(share.start, share.stop))
        whole = mf.objective(known, 0.0, factors, RIDGE) if share.start == 0 else 0.0
        worker.report(whole - explained)
