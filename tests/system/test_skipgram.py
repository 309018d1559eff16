"""The example of skip-gram as its readers run it: a cluster, a killed shard, nearest words, a picture."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.framework.cluster import TIMEOUT

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "skipgram.py"
TOPICS = ("god", "windows", "space", "hockey")  # the example looks at the neighbours of these


def write_posts(folder: Path, posts: int = 400, words: int = 30) -> list[str]:
    """Each post has one topic: half of the words of that topic, ``god`` and ``god1`` to ``god29`` for one."""
    draw = np.random.default_rng(4)
    vocabulary = [f"{topic}{i or ''}" for topic in TOPICS for i in range(words)]
    chosen = [
        post % len(TOPICS) * words + np.sort(draw.choice(words, words // 2, replace=False))
        for post in range(posts)
    ]
    folder.mkdir(parents=True)
    np.savez_compressed(
        folder / "20news-train-bow.npz",
        indptr=np.arange(0, posts * (words // 2) + 1, words // 2),
        indices=np.concatenate(chosen),
        counts=np.ones(posts * (words // 2), np.int64),
        vocab=np.frombuffer("\n".join(vocabulary).encode(), np.uint8),
    )
    return vocabulary


@pytest.mark.timeout(300)
def test_words_of_a_topic_end_beside_each_other_though_a_shard_is_killed(tmp_path: Path) -> None:
    write_posts(tmp_path / "data" / "20newsgroups")
    text, edits = re.subn(r"CLOCKS = \d+", "CLOCKS = 150", EXAMPLE.read_text())
    assert edits == 1
    assert len(text.splitlines()) < 110
    (tmp_path / "skipgram.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "skipgram.py"],
        cwd=tmp_path,
        env={**os.environ, "SCAR_DATA": str(tmp_path / "data"), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=4 * TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lost = re.search(r"^ps-1@\S+ lost (\d+) of 8 blocks$", done.stdout, re.MULTILINE)
    assert lost
    assert int(lost[1]) > 0
    for topic in TOPICS:
        found = re.search(rf"^{topic}: (.*)$", done.stdout, re.MULTILINE)
        assert found
        neighbours = found[1].split()
        assert len(neighbours) == 5
        assert all(re.fullmatch(rf"{topic}\d+", word) for word in neighbours), done.stdout
    assert (tmp_path / "skipgram.png").read_bytes().startswith(b"\x89PNG")


def test_without_its_data_it_says_what_to_do(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SCAR_DATA"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Set SCAR_DATA to the folder that has it" in done.stderr
