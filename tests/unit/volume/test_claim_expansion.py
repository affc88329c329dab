"""What the status of a claim asks of the node, and the patches of it."""

from typing import Any

import pytest

from services.volume.core.specs.claim_expansion import (
    expansion_of,
    is_infeasible,
    patch_after_failure,
    patch_after_success,
    patch_before,
)
from services.volume.core.specs.expansion import Expansion, ExpansionFailure, failure_of_code
from services.volume.core.specs.persistent_volume import PersistentVolume

GI = 1 << 30


def persistent(
    size: Any = "2Gi", modes: tuple[str, ...] = (), annotations: Any = None, requested: str = "2Gi", **status: Any
) -> PersistentVolume:
    """A volume of `size` whose claim has 1Gi, unless `status` has another capacity."""
    claim = {
        "metadata": {
            "name": "data",
            "namespace": "shop",
            "uid": "c",
            "resourceVersion": "7",
            "annotations": annotations,
        },
        "spec": {"resources": {"requests": {"storage": requested}}},
        "status": {"capacity": {"storage": "1Gi"}, **status},
    }
    spec = {"capacity": {"storage": size}, "accessModes": list(modes)}
    return PersistentVolume(name="pv", spec=spec, annotations={}, claim=claim)


def resizing(state: str = "NodeResizePending", size: str = "2Gi", **more: Any) -> Expansion:
    found = expansion_of(
        persistent(allocatedResources={"storage": size}, allocatedResourceStatuses={"storage": state}, **more)
    )
    assert found is not None
    return found


def test_a_claim_that_is_smaller_than_its_volume_is_expanded() -> None:
    found = expansion_of(persistent())
    assert found is not None
    assert (found.size, found.before, found.quantity, found.recovery) == (2 * GI, GI, "2Gi", False)
    assert (patch_before(found), patch_after_success(found)) == (None, {"capacity": {"storage": "2Gi"}})
    assert patch_after_failure(found, ExpansionFailure.INFEASIBLE, "x", "now", again=True) is None


@pytest.mark.parametrize(
    "status",
    [
        {"capacity": {"storage": "2Gi"}},
        {"capacity": {"storage": "3Gi"}},
        {"capacity": None},
        {"capacity": {"storage": []}},
        {"allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"}},
        {"allocatedResources": {"storage": "2Gi"}},
        {"allocatedResourceStatuses": {"other": "NodeResizePending"}},
    ],
)
def test_nothing_is_expanded_where_the_size_is_there_or_the_claim_does_not_ask_for_it(status: Any) -> None:
    assert expansion_of(persistent(**status)) is None


def test_the_size_is_the_one_that_the_claim_allocates() -> None:
    found = resizing(size="1536Mi", conditions=[{"type": "Resizing"}, {"type": "Other"}, 1])
    assert (found.size, found.recovery, found.superseded) == (1536 << 20, True, True)
    assert patch_before(found) == {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}}
    assert patch_before(resizing("NodeResizeInProgress")) is None
    assert patch_after_success(found) == {
        "capacity": {"storage": "1536Mi"},
        "allocatedResourceStatuses": {"storage": None},
        "conditions": [{"$patch": "delete", "type": "Resizing"}],
    }


@pytest.mark.parametrize(
    ("failure", "size", "again", "infeasible"),
    [
        (ExpansionFailure.INFEASIBLE, "2Gi", False, True),
        (ExpansionFailure.FINAL, "2Gi", True, False),
        (ExpansionFailure.FINAL, "1536Mi", False, False),
        (ExpansionFailure.FINAL, "1536Mi", True, True),
        (ExpansionFailure.IN_USE, "1536Mi", True, None),
        (None, "1536Mi", True, None),
    ],
)
def test_a_failure_without_effect_is_written_to_the_claim(
    failure: ExpansionFailure | None, size: str, again: bool, infeasible: bool | None
) -> None:
    found = resizing(size=size)
    patch = patch_after_failure(found, failure, "x", "now", again=again)
    assert is_infeasible(found, failure, again=again) is bool(infeasible)
    if infeasible is None:
        assert patch is None
        return
    assert patch is not None
    assert patch["conditions"] == [
        {
            "type": "NodeResizeError",
            "status": "True",
            "lastTransitionTime": "now",
            "message": "failed to expand pvc with x",
        }
    ]
    assert ("allocatedResourceStatuses" in patch) is infeasible


def test_each_node_expands_a_volume_of_many_writers_without_touching_the_claim() -> None:
    updated: dict[str, Any] = {"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"}}
    found = expansion_of(persistent(modes=("ReadWriteMany",), **updated))
    assert found is not None and found.before < found.size == 2 * GI
    assert (patch_before(found), patch_after_success(found)) == (None, None)
    annotated = {"volume.kubernetes.io/node-expansion-not-required": "true"}
    assert expansion_of(persistent(modes=("ReadWriteMany",), annotations=annotated, **updated)) is None
    assert expansion_of(persistent(modes=("ReadWriteOnce",), **updated)) is None


def test_codes_of_the_driver_are_kinds_of_failures() -> None:
    kinds = {
        code: failure_of_code(code, final=final)
        for code, final in [("FailedPrecondition", True), ("NotFound", True), ("Internal", True), ("Aborted", False)]
    }
    assert kinds == {
        "FailedPrecondition": ExpansionFailure.IN_USE,
        "NotFound": ExpansionFailure.INFEASIBLE,
        "Internal": ExpansionFailure.FINAL,
        "Aborted": None,
    }
