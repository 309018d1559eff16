"""Latent Dirichlet allocation by collapsed Gibbs sampling: each topic is drawn given all the others.

The parameters are the topics of the tokens, in blocks of a document each. Everything else follows from them
and is never lost: the counts of topics in documents and of words in topics are computed from the topics
whenever they are needed.

    z = worker.pull("topics")
    counts = lda.word_topics(corpus.words, z, corpus.vocabulary, topics)
    mine = lda.sweep(corpus, documents, z, counts, rng)  # new topics of these documents; updates counts
    # before the sweep:
    loss = lda.part_of_loss(corpus, z, counts, documents, worker.data_slice(topics))

Needs numba for :func:`sweep`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.errors import ShapeMismatch
from scar.models.kernels import compile_loop

Topics = NDArray[np.int32]
Counts = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokens, document after document. ``words`` int32[tokens] from 0; ``offsets`` int64[documents + 1]
    into them.
    """

    words: NDArray[np.int32]
    offsets: NDArray[np.int64]
    vocabulary: int

    @property
    def documents(self) -> int:
        return len(self.offsets) - 1

    @property
    def tokens(self) -> int:
        return len(self.words)


def word_topics(words: NDArray[np.int32], z: Topics, vocabulary: int, topics: int) -> Counts:
    """How often each word has each topic, int32 (vocabulary, topics)."""
    keys = words.astype(np.int64) * topics + z
    return np.bincount(keys, minlength=vocabulary * topics).reshape(vocabulary, topics).astype(np.int32)


def document_topics(corpus: Corpus, z: Topics, topics: int) -> Counts:
    """How often each topic occurs in each document, int32 (documents, topics)."""
    document = np.repeat(np.arange(corpus.documents), np.diff(corpus.offsets))
    return (
        np.bincount(document * topics + z, minlength=corpus.documents * topics)
        .reshape(-1, topics)
        .astype(np.int32)
    )


def sweep(
    corpus: Corpus,
    part: slice,
    z: Topics,
    counts: Counts,
    random: np.random.Generator,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Topics:
    """Sample every token of the documents ``part`` once; returns their new topics, packed. ``counts`` is
    changed, ``z`` is not.

    ``z`` int32[tokens] are the topics of the whole corpus, ``counts`` what :func:`word_topics` says of them.
    """
    if z.shape != corpus.words.shape or counts.shape[0] != corpus.vocabulary:
        raise ShapeMismatch(
            f"topics {z.shape} and counts {counts.shape} do not fit a corpus of {corpus.tokens} tokens"
        )
    first, last, _ = part.indices(corpus.documents)
    low = int(corpus.offsets[first])
    high = int(corpus.offsets[last])
    fresh = z[low:high].copy()
    draws = random.random(high - low, dtype=np.float32)
    offsets = corpus.offsets[first : last + 1] - low
    totals = counts.sum(axis=0, dtype=np.int64)
    _sample_topics(
        corpus.words[low:high], offsets, fresh, counts, totals, draws, np.float32(alpha), np.float32(beta)
    )
    return fresh


def negative_log_likelihood(
    corpus: Corpus, z: Topics, topics: int, alpha: float = 1.0, beta: float = 1.0
) -> float:
    """-log p(words, topics), parameters integrated out, in nats."""
    counts = word_topics(corpus.words, z, corpus.vocabulary, topics)
    return part_of_loss(corpus, z, counts, slice(None), slice(None), alpha, beta)


def part_of_loss(
    corpus: Corpus,
    z: Topics,
    counts: Counts,
    documents: slice,
    topics: slice,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> float:
    """What these documents and these topics' words add to :func:`negative_log_likelihood`; parts add up to
    the whole.
    """
    first, last, _ = documents.indices(corpus.documents)
    low = int(corpus.offsets[first])
    high = int(corpus.offsets[last])
    mine = Corpus(corpus.words[low:high], corpus.offsets[first : last + 1] - low, corpus.vocabulary)
    return _negative_log_probability(counts[:, topics].T, beta) + _negative_log_probability(
        document_topics(mine, z[low:high], counts.shape[1]), alpha
    )


def _negative_log_probability(counts: Counts, prior: float) -> float:
    """-log of the Dirichlet-multinomial probability of each row, summed."""
    totals = counts.sum(axis=1)
    # Counts are whole, so log Gamma(n + prior) - log Gamma(prior) is a sum of n logarithms: a table of sums
    # answers.
    parts = np.append(0.0, np.cumsum(np.log(np.arange(int(counts.max(initial=0))) + prior)))
    whole = np.append(0.0, np.cumsum(np.log(np.arange(int(totals.max(initial=0))) + prior * counts.shape[1])))
    return float(whole[totals].sum() - parts[counts].sum())


@compile_loop(fastmath=True)
def _sample_topics(
    words: NDArray[np.int32],
    offsets: NDArray[np.int64],
    z: Topics,
    counts: Counts,
    totals: NDArray[np.int64],
    draws: NDArray[np.float32],
    alpha: np.float32,
    beta: np.float32,
) -> None:
    """p(topic) ~ (tokens of the document with it + alpha) * (this word with it + beta) / (all tokens with
    it + V beta).
    """
    vocabulary, topics = counts.shape
    inverse = np.empty(topics, np.float32)
    for k in range(topics):
        inverse[k] = 1 / (np.float32(totals[k]) + vocabulary * beta)
    weights = np.empty(topics, np.float32)
    mine = np.empty(topics, np.float32)
    for document in range(len(offsets) - 1):
        mine[:] = alpha
        for token in range(offsets[document], offsets[document + 1]):
            mine[z[token]] += 1
        for token in range(offsets[document], offsets[document + 1]):
            row = counts[words[token]]
            old = z[token]
            row[old] -= 1
            mine[old] -= 1
            totals[old] -= 1
            inverse[old] = 1 / (np.float32(totals[old]) + vocabulary * beta)
            for k in range(topics):
                weights[k] = mine[k] * (np.float32(row[k]) + beta) * inverse[k]
            total = np.float32(0)
            for k in range(topics):
                total += weights[k]
                weights[k] = total
            new = 0
            level = draws[token] * total
            while new < topics - 1 and weights[new] <= level:
                new += 1
            z[token] = new
            row[new] += 1
            mine[new] += 1
            totals[new] += 1
            inverse[new] = 1 / (np.float32(totals[new]) + vocabulary * beta)
