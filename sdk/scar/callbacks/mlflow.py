"""Numbers of a training as a run of MLflow: ``pip install 'scar-ps[mlflow]'``."""

from __future__ import annotations

from collections.abc import Mapping

from mlflow import MlflowClient

from scar.callbacks import FailureNote


class MLflow:
    """A run of ``experiment``, which is made if there is none: metrics by clock, a tag for each failure.

    ``tracking_uri``: a server or a folder; None: as MLflow is set up.
    """

    def __init__(self, experiment: str, run_name: str | None = None, tracking_uri: str | None = None) -> None:
        self._client = MlflowClient(tracking_uri=tracking_uri)
        known = self._client.get_experiment_by_name(experiment)
        number = known.experiment_id if known else self._client.create_experiment(experiment)
        self.run_id: str = self._client.create_run(number, run_name=run_name).info.run_id

    def log_metrics(self, clock: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._client.log_metric(self.run_id, name, value, step=clock)

    def log_failure(self, failure: FailureNote) -> None:
        self._client.set_tag(self.run_id, f"failure.{failure.number}", failure.text)

    def close(self) -> None:
        self._client.set_terminated(self.run_id)
