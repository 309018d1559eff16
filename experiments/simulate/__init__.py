"""A simulator of failures at the size of a data centre: ten thousand workers on SimGrid's network model.

    scar experiment simulate --runs 30
    scar experiment which-strategy

Read from below: ``fairness`` shares links, ``transfers`` moves bytes, ``network`` knows who sends what to
whom, ``faults`` says when what fails, ``scenario`` holds what a run depends on, ``run`` is one training;
``paper`` and ``choice`` are the experiments, ``reference`` asks SimGrid.
"""
