"""Topics of newsgroup posts by collapsed Gibbs sampling.

A document is a block; counts of words are made again in each clock.

scar train examples/lda.py --workers 2        (SCAR_DATA names the folder with 20newsgroups/:
docs/datasets.md)
"""

import os

import numpy as np

import scar
from scar import paper_datasets
from scar.models import lda

TOPICS = int(os.environ.get("TOPICS", "20"))
corpus = paper_datasets.corpus(os.environ.get("CORPUS", "20newsgroups"))

job = scar.Job(
    "lda",
    tables=[
        scar.Table(
            "topics",
            (corpus.tokens,),
            dtype="int32",
            rule=scar.assign(),
            init=scar.uniform(0, TOPICS),
            blocks=scar.ragged(corpus.offsets.tolist()),
            norm="histogram",
        )
    ],
    shards=4,
    workers=2,
)


def train(worker: scar.Worker) -> None:
    for clock in worker.clocks(limit=60):
        z = worker.pull("topics")
        documents = worker.data_slice(corpus.documents)
        counts = lda.word_topics(corpus.words, z, corpus.vocabulary, TOPICS)
        worker.report(lda.part_of_loss(corpus, z, counts, documents, worker.data_slice(TOPICS)))
        random = np.random.default_rng([worker.job.seed, clock, worker.rank])
        fresh = lda.sweep(corpus, documents, z, counts, random)
        worker.push("topics", fresh, ids=np.arange(documents.start, documents.stop))
