"""Logistic regression by FTRL-Proximal on hashed words: is a post of 20 Newsgroups about religion?

A post counts as such when it has one of the words TOPIC. Those are hidden from the model, all others are
hashed into buckets. A worker pulls and pushes the buckets of its posts alone. L1 keeps most weights at 0.
SCAR_DATA names the folder with 20newsgroups/ (docs/datasets.md).

scar train examples/ftrl.py --workers 2 &
scar kill ps-1        # its buckets come back with their slots, from the running checkpoint
"""

from zlib import crc32

import numpy as np

import scar
from scar import paper_datasets

BUCKETS = 1 << 16
BATCH = 512
CLOCKS = 300
TOPIC = ("god", "jesus", "christian", "bible", "church", "religion")

job = scar.Job(
    "ftrl",
    tables=[scar.Table("w", (BUCKETS,), rule=scar.ftrl(lr=0.1, l1=1.0))],
    shards=4,
    workers=2,
)


def load_posts() -> tuple[list[np.ndarray], np.ndarray]:
    """Ascending buckets of each post, and whether it is about the topic."""
    posts, words = paper_datasets.corpus("20newsgroups"), paper_datasets.newsgroup_words()
    buckets = np.array([crc32(word.encode()) % BUCKETS for word in words])
    hidden = np.isin(words, TOPIC)
    parts = np.split(posts.words, posts.offsets[1:-1])
    labels = np.array([hidden[part].any() for part in parts], np.float32)
    return [np.unique(buckets[part[~hidden[part]]]) for part in parts], labels


def train(worker: scar.Worker) -> None:
    posts, labels = load_posts()
    for clock in worker.clocks(limit=CLOCKS):
        batch = np.random.default_rng(clock).choice(len(posts), BATCH)[worker.data_slice(BATCH)]
        y = labels[batch]
        lengths = [len(posts[i]) for i in batch]
        ids, where = np.unique(np.concatenate([posts[i] for i in batch]), return_inverse=True)
        owner = np.repeat(np.arange(len(batch)), lengths)  # of each feature: its post
        score = np.bincount(owner, worker.pull("w", ids=ids)[where], len(batch))
        probability = 1 / (1 + np.exp(-score))
        error = probability - y
        worker.push("w", np.bincount(where, error[owner], len(ids)).astype(np.float32), ids=ids)
        worker.report(float(np.sum(np.logaddexp(0, score) - y * score)) / BATCH)
        worker.log({"accuracy": float(np.sum((probability > 0.5) == (y > 0.5))) / BATCH})
