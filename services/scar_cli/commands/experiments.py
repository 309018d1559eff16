"""`scar compare` and `scar experiment`."""

from __future__ import annotations

from scar_cli.options import with_request
from scar_cli.requests import CompareRequest, ExperimentRequest


@with_request(CompareRequest)
def compare_strategies(request: CompareRequest) -> None:
    """Strategies side by side: real trainings with the same seeds and the same kills; one table with 95 %
    intervals, one plot.

    Server-side strategies say what happens when a server dies, worker-side ones what happens when a worker
    does: ps (it comes back and repeats the lost iteration, clocks wait), ckpt (everything goes back to a
    checkpoint), ignr (the others take over its data), ignr-drop (nobody does). docs/strategies.md describes
    all of them. Each is trained on a cluster of its own (3 workers, 4 servers), or on a release of the chart
    with --on kubernetes. Rework is what a strategy needs beyond the undisturbed training of the same seed. A
    run that was stopped continues where it was.

    Examples: [bold]scar compare[/] · [bold]scar compare partial full --kill ps-0@15 --kill ps-2@30 --seeds
    5[/] · [bold]scar compare ps ckpt ignr ignr-drop --kill worker-1@20 -o json[/] · [bold]scar compare
    partial full --on kubernetes[/]
    """
    from scar_cli.compare import run_comparison

    run_comparison(request)


@with_request(ExperimentRequest)
def run_experiment(request: ExperimentRequest) -> None:
    """Make figures of the paper again, with 95 % intervals. A run that was stopped continues where it was.

    They are part of the repository, not of the installed package.

    Examples: [bold]scar experiment all --quick[/] · [bold]scar experiment fig7 --panel mlr-fashion-mnist
    --lost 0.3 --jobs 2[/]
    """
    from scar_cli.experiment import run_requested

    run_requested(request)
