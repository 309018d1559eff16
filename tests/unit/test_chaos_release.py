"""Workers of a chaos run, made from the chart's template."""

from __future__ import annotations

import copy
from typing import Any

from scar_chaos.targets.release import fill_worker_template

TEMPLATE: dict[str, Any] = {
    "metadata": {"name": "scar-worker", "labels": {"app.kubernetes.io/component": "worker"}},
    "spec": {
        "replicas": 0,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "worker",
                        "image": "theirs:1",
                        "env": [
                            {"name": "SCAR_TRAIN", "value": "/etc/scar/training/train.py"},
                            {"name": "SCAR_LISTEN", "value": "x"},
                        ],
                        "volumeMounts": [
                            {"name": "tmp", "mountPath": "/tmp"},
                            {"name": "training", "mountPath": "/etc/scar"},
                        ],
                    }
                ],
                "volumes": [
                    {"name": "tmp", "emptyDir": {}},
                    {"name": "training", "configMap": {"name": "scar-training"}},
                ],
            }
        },
    },
}


def test_the_template_is_filled_in_and_left_as_it_was() -> None:
    before = copy.deepcopy(TEMPLATE)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "scar-worker-template", "uid": "1234"}
    made = fill_worker_template(
        TEMPLATE,
        3,
        "scar:1",
        {"SCAR_TRAIN": "/opt/workload.py", "SCAR_CHAOS_RECORDER": "10.0.0.1:7070"},
        owner,
    )
    assert before == TEMPLATE
    assert (made["spec"]["replicas"], made["metadata"]["ownerReferences"]) == (3, [owner])
    pod = made["spec"]["template"]["spec"]
    worker = pod["containers"][0]
    assert worker["image"] == "scar:1"
    assert worker["env"] == [
        {"name": "SCAR_LISTEN", "value": "x"},
        {"name": "SCAR_TRAIN", "value": "/opt/workload.py"},
        {"name": "SCAR_CHAOS_RECORDER", "value": "10.0.0.1:7070"},
    ]
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]
    assert [mount["name"] for mount in worker["volumeMounts"]] == ["tmp"]
