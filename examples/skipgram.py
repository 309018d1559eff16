"""Vectors of words by skip-gram with negative sampling on 20 Newsgroups; one shard is killed in the middle.

The set keeps no order of words, so a word's context is any other word of its post: a window as long as the
post. 32 rows make a block; a worker pulls and pushes the rows of its batch alone. SCAR_DATA names the folder
with 20newsgroups/ (docs/datasets.md). The picture of the loss needs scar-ps[demo].

python examples/skipgram.py                          # a cluster, the kill, neighbours of words, skipgram.png
scar train examples/skipgram.py --workers 2          # on a cluster that runs
"""

import numpy as np

import scar
from scar import paper_datasets

WIDTH, NEGATIVES, BATCH = 32, 5, 4096
CLOCKS = 600
words = paper_datasets.newsgroup_words()

# Adagrad with one sum a row: words that are rare take larger steps.
rule, blocks = scar.adagrad(lr=0.1, rowwise=True), scar.rows(32)
start = scar.uniform(-0.5 / WIDTH, 0.5 / WIDTH)
job = scar.Job(
    "skipgram",
    tables=[
        scar.Table("words", (len(words), WIDTH), rule=rule, init=start, blocks=blocks),
        scar.Table("contexts", (len(words), WIDTH), rule=rule, blocks=blocks),
    ],
    shards=4,
    workers=2,
)


def train(worker: scar.Worker) -> None:
    posts = paper_datasets.corpus("20newsgroups")
    frequency = np.bincount(posts.words, minlength=posts.vocabulary) ** 0.75
    often = np.cumsum(frequency) / frequency.sum()
    for clock in worker.clocks(limit=CLOCKS):
        draw = np.random.default_rng((clock, worker.rank))
        share = worker.data_slice(BATCH)
        # Words, for each another of the same post, and NEGATIVES of any post, frequent ones more often.
        at = draw.integers(len(posts.words), size=share.stop - share.start)
        post = np.searchsorted(posts.offsets, at, side="right") - 1
        beside = draw.integers(posts.offsets[post], posts.offsets[post + 1])
        others = np.searchsorted(often, draw.random((len(at), NEGATIVES)))
        contexts = np.concatenate((posts.words[beside][:, None], others), axis=1)
        rows, of_row = np.unique(posts.words[at], return_inverse=True)
        columns, of_column = np.unique(contexts.ravel(), return_inverse=True)

        coming = worker.pull_async("contexts", rows=columns)  # beside the other table
        u = worker.pull("words", rows=rows)[of_row][:, None]
        v = coming.result()[of_column].reshape(*contexts.shape, WIDTH)
        score = (u * v).sum(axis=2)
        score[
            :, 0
        ] *= -1  # the loss is log(1 + exp(-score)) where the context is true, and log(1 + exp(score))
        worker.report(float(np.logaddexp(0, score).sum()) / BATCH)
        error = 1 / (1 + np.exp(-score))[..., None]
        error[:, 0] *= -1
        gradients = {"words": np.zeros((len(rows), WIDTH), np.float32)}
        gradients["contexts"] = np.zeros((len(columns), WIDTH), np.float32)
        np.add.at(gradients["words"], of_row, (error * v).sum(axis=1))
        np.add.at(gradients["contexts"], of_column, (error * u).reshape(-1, WIDTH))
        worker.push(gradients, rows={"words": rows, "contexts": columns})


def nearest(vectors: np.ndarray, word: str, count: int = 5) -> list[str]:
    """The words whose vectors have the smallest angle to that of ``word``."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    order = np.argsort(-unit @ unit[words.index(word)])
    return [words[i] for i in order if words[i] != word][:count]


def main() -> None:
    from matplotlib import pyplot

    killed: list[int] = []
    with scar.LocalCluster(shards=4) as cluster:

        def watch(status) -> None:  # type: ignore[no-untyped-def]  # each look at the cluster
            if status.clock >= CLOCKS // 2 and not killed:
                killed.append(status.clock)
                cluster.kill("ps-1")

        result = cluster.train(job, train, watch=watch)
    for failure in result.ledger:
        print(", ".join(failure.members), "lost", failure.lost_blocks, "of", failure.total_blocks, "blocks")
    for word in ("god", "windows", "space", "hockey"):
        print(f"{word}: {' '.join(nearest(result.model['words'], word))}")
    clocks = sorted(result.history)
    pyplot.plot(clocks, [result.history[clock] for clock in clocks])
    pyplot.axvline(killed[0], color="tab:red", linestyle="--", label="ps-1 killed")
    pyplot.xlabel("clock")
    pyplot.ylabel("loss of a word")
    pyplot.legend()
    pyplot.savefig("skipgram.png")


if __name__ == "__main__":
    main()
