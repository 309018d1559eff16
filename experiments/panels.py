"""The eight settings of figures 7 and 8, and any other model on any other data of its kind: ``MODEL-DATA``.

mlr-mnist  mlr-fashion-mnist  mf-jester  lda-reuters  cnn-byshard-digits
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from experiments.workloads import Factorisation, Network, Regression, TopicModel, Workload
from scar import paper_datasets
from scar.errors import ConfigError
from scar.models.lda import Corpus
from scar.models.mf import Ratings

PANELS = (
    "mlr-covtype",
    "mf-movielens",
    "lda-20newsgroups",
    "cnn-bylayer-mnist",
    "mlr-mnist",
    "mf-jester",
    "lda-reuters",
    "cnn-byshard-mnist",
)
TITLES = {
    "mlr": "MLR",
    "mf": "MF",
    "lda": "LDA",
    "cnn-bylayer": "CNN by layer",
    "cnn-byshard": "CNN by shard",
}
DATA = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "covtype": "CoverType",
    "movielens": "MovieLens",
    "jester": "Jester",
    "20newsgroups": "20 Newsgroups",
    "reuters": "Reuters",
}
TOPICS = 20  # seed 000, appendix C, as the numbers below


@lru_cache(maxsize=2)  # a process works on one panel at a time
def load_workload(panel: str, thin: int = 1) -> Workload:
    """``thin``: use only every so-manieth example, user or document, for a quick look.

    Raises :class:`ConfigError` for an invalid panel.
    """
    model, data = split_panel(panel)
    if model == "mf":
        return Factorisation(
            _thin_ratings(paper_datasets.ratings(data), thin), factors=5 if data == "jester" else 20
        )
    if model == "lda":
        return TopicModel(_thin_corpus(paper_datasets.corpus(data), thin), TOPICS)
    whole = paper_datasets.labelled(data)
    examples = paper_datasets.Labelled(whole.x[::thin], whole.y[::thin])
    if model != "mlr":
        return Network(examples, shards=model == "cnn-byshard")
    batch, rate = (1_000, 1e-7) if data == "covtype" else (10_000, 1e-5)
    # gradients are sums: as many steps of the same length
    return Regression(examples, batch // thin, rate * thin)


def _thin_ratings(ratings: Ratings, thin: int) -> Ratings:
    kept = ratings.rows % thin == 0
    columns, numbers = np.unique(ratings.columns[kept], return_inverse=True)
    shape = -(-ratings.shape[0] // thin), len(columns)
    return Ratings(ratings.rows[kept] // thin, numbers.astype(np.int32), ratings.values[kept], shape)


def _thin_corpus(corpus: Corpus, thin: int) -> Corpus:
    kept = np.arange(corpus.documents) % thin == 0
    lengths = np.diff(corpus.offsets)
    words = corpus.words[np.repeat(kept, lengths)]
    return Corpus(words, np.append(0, np.cumsum(lengths[kept])), corpus.vocabulary)


def split_panel(panel: str) -> tuple[str, str]:
    """Model and data of a panel."""
    for model in TITLES:
        if panel.startswith(f"{model}-"):
            return model, panel.removeprefix(f"{model}-")
    raise ConfigError(f"panel {panel!r} is unknown", f"Use MODEL-DATA, with a model of {', '.join(TITLES)}")


def chosen_panels(
    given: Sequence[str], best: Sequence[str], models: Sequence[str] = tuple(TITLES)
) -> tuple[str, ...]:
    """The panels that a user asks for whose model is among ``models``; ``best`` when none is asked for.

    Raises :class:`ConfigError` for an invalid panel.
    """
    return tuple(panel for panel in given if split_panel(panel)[0] in models) if given else tuple(best)


def panel_title(panel: str) -> str:
    """How figures name a panel."""
    model, data = split_panel(panel)
    return f"{TITLES[model]}, {DATA.get(data, data)}"
