"""Every object is one that Kubernetes knows, from the oldest version that the chart allows to the newest:
no field misspelt.
"""

from __future__ import annotations

import kubernetes_validate as kubernetes
import pytest
import yaml

from tests.helm.chart import CHART, Object, pods

OLDEST = (
    yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"].removeprefix(">=").rpartition(".")[0]
)
OTHERS = "monitoring.coreos.com/"  # kinds of an operator; Kubernetes itself does not know them


def own(objects: list[Object]) -> list[Object]:
    found = [one for one in objects if not one["apiVersion"].startswith(OTHERS)]
    return [
        *found,
        *(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}} | pod
            for pod in pods(objects).values()
        ),
    ]


@pytest.mark.parametrize("version", [OLDEST, kubernetes.latest_version()])
def test_objects_fit_the_schemas_of(everything: list[Object], version: str) -> None:
    checked = own(everything)
    for one in checked:
        kubernetes.validate(one, version, strict=True)
    assert len(checked) > 40


def test_a_misspelt_field_is_found(everything: list[Object]) -> None:
    pod = next(one for one in own(everything) if one["kind"] == "Pod")
    with pytest.raises(kubernetes.ValidationError, match="terminationGracePeriodSecond"):
        kubernetes.validate(
            pod | {"spec": pod["spec"] | {"terminationGracePeriodSecond": 5}}, "1.34", strict=True
        )
