"""Small pods for tests of podsync's core, and the steps at which its process is ended."""

from typing import Any

import pytest

Pod = dict[str, Any]


def a_pod(uid: str = "u1", name: str = "web", **spec: Any) -> Pod:
    """A defaulted static pod with one container `c`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {
            "containers": [a_container("c")],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            **spec,
        },
    }


def a_container(name: str, **fields: Any) -> Pod:
    """A container of the image that is there."""
    return {"name": name, "image": "busybox:1", "imagePullPolicy": "IfNotPresent", **fields}


def every_step(last: int) -> list[Any]:
    """The steps at which to kill, 1 to `last`: each of them, and every sixth in the short lane."""
    return [step if step % 6 == 0 else pytest.param(step, marks=pytest.mark.long) for step in range(1, last + 1)]
