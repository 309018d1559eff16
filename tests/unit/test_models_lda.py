"""Topics: counts follow from them, the likelihood is the definition's, and sweeps sample what they should."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("numba")

from scar.errors import ShapeMismatch
from scar.models import lda


def corpus(seed: int = 1, documents: int = 12, vocabulary: int = 15) -> lda.Corpus:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 20, documents)
    words = draw.integers(0, vocabulary, lengths.sum()).astype(np.int32)
    return lda.Corpus(words, np.append(0, np.cumsum(lengths)), vocabulary)


def counted(texts: lda.Corpus, z: np.ndarray, topics: int) -> np.ndarray:
    return lda.word_topics(texts.words, z, texts.vocabulary, topics)


def test_counts() -> None:
    texts = corpus()
    z = np.random.default_rng(2).integers(0, 4, texts.tokens).astype(np.int32)
    words, documents = counted(texts, z, 4), lda.document_topics(texts, z, 4)
    assert words.sum() == documents.sum() == texts.tokens
    assert words[3, 1] == np.sum((texts.words == 3) & (z == 1))
    assert documents[2, 0] == np.sum(z[texts.offsets[2] : texts.offsets[3]] == 0)


def test_likelihood_is_that_of_urns_drawn_one_token_after_the_other() -> None:
    texts, topics, alpha, beta = corpus(), 3, 0.5, 0.2
    z = np.random.default_rng(2).integers(0, topics, texts.tokens).astype(np.int32)
    total = 0.0
    words = np.full((texts.vocabulary, topics), beta)
    for start, end in itertools.pairwise(texts.offsets):
        mine = np.full(topics, alpha)
        for word, topic in zip(texts.words[start:end], z[start:end], strict=True):
            total -= math.log(mine[topic] / mine.sum()) + math.log(words[word, topic] / words[:, topic].sum())
            mine[topic] += 1
            words[word, topic] += 1
    assert lda.negative_log_likelihood(texts, z, topics, alpha, beta) == pytest.approx(total)


def test_parts_of_the_loss_add_up() -> None:
    texts = corpus()
    z = np.random.default_rng(2).integers(0, 5, texts.tokens).astype(np.int32)
    counts, shares = counted(texts, z, 5), [(slice(0, 7), slice(0, 2)), (slice(7, 12), slice(2, 5))]
    parts = [lda.part_of_loss(texts, z, counts, documents, topics) for documents, topics in shares]
    assert sum(parts) == pytest.approx(lda.negative_log_likelihood(texts, z, 5))


def test_a_sweep_keeps_the_counts_right_and_only_changes_its_documents() -> None:
    texts, draw = corpus(), np.random.default_rng(3)
    z = draw.integers(0, 4, texts.tokens).astype(np.int32)
    counts, former = counted(texts, z, 4), z.copy()
    fresh = lda.sweep(texts, slice(3, 9), z, counts, draw)
    assert (z == former).all()
    z[texts.offsets[3] : texts.offsets[9]] = fresh
    assert (counts == counted(texts, z, 4)).all()
    with pytest.raises(ShapeMismatch):
        lda.sweep(texts, slice(None), z[:-1], counts, draw)


def test_samples_have_the_conditional_distribution() -> None:
    """One token, all others fixed: how often each topic is drawn against the formula."""
    texts = lda.Corpus(np.array([0, 1, 0], np.int32), np.array([0, 1, 3]), 2)
    z, alpha, beta = np.array([0, 1, 1], np.int32), 0.7, 0.3
    drawn = np.zeros(3)
    random = np.random.default_rng(5)
    for _ in range(20_000):
        drawn[lda.sweep(texts, slice(0, 1), z, counted(texts, z, 3), random, alpha, beta)[0]] += 1
    weights = np.array(
        [alpha * beta / (2 * beta), alpha * (1 + beta) / (2 + 2 * beta), alpha * beta / (2 * beta)]
    )
    np.testing.assert_allclose(drawn / drawn.sum(), weights / weights.sum(), atol=0.01)


def test_topics_are_found() -> None:
    """Documents of two disjoint vocabularies end up with a topic each."""
    draw = np.random.default_rng(6)
    words = np.concatenate([draw.integers(0, 10, 40) + 10 * (document % 2) for document in range(20)]).astype(
        np.int32
    )
    texts = lda.Corpus(words, np.arange(0, 801, 40), 20)
    z = draw.integers(0, 2, texts.tokens).astype(np.int32)
    before = lda.negative_log_likelihood(texts, z, 2)
    for _ in range(60):
        z = lda.sweep(texts, slice(None), z, counted(texts, z, 2), draw, alpha=0.1, beta=0.1)
    assert lda.negative_log_likelihood(texts, z, 2) < before - 300
    assert lda.document_topics(texts, z, 2).max(axis=1).min() > 35
