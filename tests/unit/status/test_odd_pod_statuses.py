"""Pod statuses of any shape, from the API server or from podsync: nothing raises, and nothing is written twice."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.status.core.pod_status_baseline import kept_of, newest
from services.status.core.pod_status_deletion import may_be_deleted
from services.status.core.pod_status_merge import merged_status, status_patch
from services.status.core.strategic_patch import without_nulls
from tests.unit.examples import examples

NOW, LATER = "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"

SCALARS = st.sampled_from([None, True, False, 0, 1, -1.5, "", "x", "True", "False", NOW, "Failed", "Running"])
ODD = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=4
)


def mostly(expected: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """As it should be, or anything."""
    return expected | expected | ODD


TIMES = mostly(st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"]))
CONDITION = mostly(
    st.fixed_dictionaries(
        {},
        optional={
            "type": mostly(st.sampled_from(["Ready", "ContainersReady", "PodScheduled", "DisruptionTarget", "a/gate"])),
            "status": mostly(st.sampled_from(["True", "False"])),
            "lastTransitionTime": TIMES,
            "message": mostly(st.just("m")),
            "observedGeneration": ODD,
        },
    )
)
CONTAINERS = mostly(st.lists(mostly(st.fixed_dictionaries({"name": mostly(st.sampled_from("ab"))})), max_size=3))
STATUS = mostly(
    st.fixed_dictionaries(
        {},
        optional={
            "phase": mostly(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])),
            "conditions": mostly(st.lists(CONDITION, max_size=4)),
            "startTime": TIMES,
            "observedGeneration": mostly(st.integers(0, 3)),
            "qosClass": ODD,
            "reason": ODD,
            "podIPs": mostly(
                st.lists(mostly(st.fixed_dictionaries({"ip": mostly(st.sampled_from("12"))})), max_size=3)
            ),
            "containerStatuses": CONTAINERS,
            "initContainerStatuses": CONTAINERS,
            "ephemeralContainerStatuses": CONTAINERS,
            "resourceClaimStatuses": ODD,
        },
    )
)
STATUS_OBJECT = STATUS.filter(lambda status: isinstance(status, dict))
METADATA = mostly(
    st.fixed_dictionaries(
        {},
        optional={
            "resourceVersion": mostly(st.sampled_from(["5", "10", "9" * 5000, "٣"])),
            "deletionTimestamp": TIMES,
            "annotations": ODD,
            "uid": ODD,
        },
    )
)
POD = st.fixed_dictionaries({}, optional={"metadata": METADATA, "status": STATUS})


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None)
@given(api=POD, wanted=STATUS_OBJECT)
def test_any_status_is_merged_and_a_second_time_is_no_change(api: Any, wanted: Any) -> None:
    status_patch(api, wanted, now=NOW)
    before = api.get("status")
    shown = without_nulls(before) if isinstance(before, dict) else {}
    written = merged_status(shown, without_nulls(wanted), now=NOW)
    assert status_patch({"status": written}, wanted, now=LATER) is None


@pytest.mark.long
@settings(max_examples=examples(200), deadline=None)
@given(watched=st.none() | POD, answered=st.none() | POD, in_step=st.booleans())
def test_any_two_objects_are_compared(watched: Any, answered: Any, in_step: bool) -> None:
    kept = kept_of(answered) if answered is not None else None
    assert newest(watched, answered, in_step=in_step).pod in (watched, answered)
    assert newest(watched, kept, in_step=in_step).certain in (True, False)


@settings(max_examples=examples(200), deadline=None)
@given(pod=POD)
def test_of_any_object_it_is_known_whether_it_may_go(pod: Any) -> None:
    assert may_be_deleted(pod, None, admitted_is_all=False) is False
    assert may_be_deleted(pod, None, admitted_is_all=True) in (True, False)


@pytest.mark.parametrize("odd", [[None], "x", [1, {"name": None}], [[]], {"a": 1}])
def test_odd_container_statuses_of_the_api_are_replaced(odd: Any) -> None:
    ours = [{"name": "a", "ready": True}]
    patch = status_patch({"status": {"containerStatuses": odd}}, {"containerStatuses": ours}, now=NOW)
    assert patch == {"containerStatuses": ours}
