"""What a resize writes for pods with sidecars and init containers, and for the resources of a pod itself.

Worked out by hand from pods.md 5.6, 6.5 and 6.6. Units as in `test_resize_transitions`.
"""

import pytest

from tests.unit.podsync.play import Play
from tests.unit.podsync.resize_table import MI, Row, check, condition, listed

EVEN = "100m/64Mi 100m/64Mi"

SIDECARS = [
    Row(
        name="a sidecar gets more CPU",
        before={"s": "50m/- 50m/-", "a": "100m/- 100m/-"},
        after={"s": "150m/- 150m/-", "a": "100m/- 100m/-"},
        pod=(256, 25_000, None),
        containers={"s": (153, 15_000, 0), "a": (102, 10_000, 0)},
        writes=["pod cpu 25000", "pod shares 256", "s shares 153 cpu 15000"],
    ),
    Row(
        name="a sidecar gets less memory",
        before={"s": "100m/128Mi 100m/128Mi", "a": EVEN},
        after={"s": "100m/64Mi 100m/64Mi", "a": EVEN},
        pod=(204, 20_000, 128 * MI),
        containers={"s": (102, 10_000, 64 * MI), "a": (102, 10_000, 64 * MI)},
        writes=["s memory 67108864", "pod memory 134217728"],
    ),
    Row(
        name="a sidecar is restarted for its resize policy",
        before={"s": EVEN, "a": EVEN},
        after={"s": "100m/128Mi 100m/128Mi", "a": EVEN},
        restart={"s": "memory"},
        restarted=("s",),
        pod=(204, 20_000, 192 * MI),
        containers={"s": (102, 10_000, 128 * MI), "a": (102, 10_000, 64 * MI)},
    ),
    Row(
        name="a sidecar shrinks by what the container grows",
        before={"s": "200m/- 200m/-", "a": "100m/- 100m/-"},
        after={"s": "100m/- 100m/-", "a": "200m/- 200m/-"},
        pod=(307, 30_000, None),
        containers={"s": (102, 10_000, 0), "a": (204, 20_000, 0)},
        writes=["s shares 102 cpu 10000", "a shares 204 cpu 20000"],
    ),
    Row(
        name="an init container that has ended counts for the pod and is not written",
        before={"i": "400m/- 400m/-", "a": "100m/- 100m/-"},
        after={"i": "600m/- 600m/-", "a": "100m/- 100m/-"},
        pod=(614, 60_000, None),
        containers={"a": (102, 10_000, 0)},
        writes=["pod cpu 60000", "pod shares 614"],
    ),
    Row(
        name="below the containers' sum an init container counts no more",
        before={"i": "400m/- 400m/-", "a": "100m/- 100m/-"},
        after={"i": "50m/- 50m/-", "a": "100m/- 100m/-"},
        pod=(102, 10_000, None),
        containers={"a": (102, 10_000, 0)},
        writes=["pod shares 102", "pod cpu 10000"],
    ),
    Row(
        name="a sidecar counts beside the init container after it",
        before={"s": "100m/- 100m/-", "i": "400m/- 400m/-", "a": "100m/- 100m/-"},
        after={"s": "200m/- 200m/-", "i": "400m/- 400m/-", "a": "100m/- 100m/-"},
        pod=(614, 60_000, None),
        containers={"s": (204, 20_000, 0), "a": (102, 10_000, 0)},
        writes=["pod cpu 60000", "pod shares 614", "s shares 204 cpu 20000"],
    ),
]

POD_LEVEL = [
    Row(
        name="more for the pod is more for a container without limits",
        before={"pod": EVEN, "a": "-/- -/-"},
        after={"pod": "200m/64Mi 200m/64Mi", "a": "-/- -/-"},
        pod=(204, 20_000, 64 * MI),
        containers={"a": (204, 20_000, 64 * MI)},
        writes=["pod cpu 20000", "pod shares 204", "a shares 204 cpu 20000"],
    ),
    Row(
        name="less memory for the pod",
        before={"pod": "100m/128Mi 100m/128Mi", "a": "-/- -/-"},
        after={"pod": EVEN, "a": "-/- -/-"},
        pod=(102, 10_000, 64 * MI),
        containers={"a": (102, 10_000, 64 * MI)},
        writes=["a memory 67108864", "pod memory 67108864"],
    ),
    Row(
        name="a higher request of the pod alone",
        before={"pod": "200m/- -/-", "a": "100m/- -/-"},
        after={"pod": "400m/- -/-", "a": "100m/- -/-"},
        pod=(409, None, None),
        containers={"a": (102, 0, 0)},
        writes=["pod shares 409"],
    ),
    Row(
        name="a higher limit of the pod does not change a container's own",
        before={"pod": "200m/- 300m/-", "a": "100m/- 100m/-"},
        after={"pod": "200m/- 500m/-", "a": "100m/- 100m/-"},
        pod=(204, 50_000, None),
        containers={"a": (102, 10_000, 0)},
        writes=["pod cpu 50000"],
    ),
    Row(
        name="a container grows within its pod",
        before={"pod": "300m/- 300m/-", "a": "100m/- 100m/-"},
        after={"pod": "300m/- 300m/-", "a": "200m/- 200m/-"},
        pod=(307, 30_000, None),
        containers={"a": (204, 20_000, 0)},
        writes=["a shares 204 cpu 20000"],
    ),
    Row(
        name="the pod and its container grow",
        before={"pod": "200m/64Mi 200m/64Mi", "a": EVEN},
        after={"pod": "400m/128Mi 400m/128Mi", "a": "300m/64Mi 300m/64Mi"},
        pod=(409, 40_000, 128 * MI),
        containers={"a": (307, 30_000, 64 * MI)},
        writes=["pod memory 134217728", "pod cpu 40000", "pod shares 409", "a shares 307 cpu 30000"],
    ),
    Row(
        name="a pod gets its first CPU limit",
        before={"pod": "200m/- -/-", "a": "100m/- -/-"},
        after={"pod": "200m/- 400m/-", "a": "100m/- -/-"},
        pod=(204, 40_000, None),
        containers={"a": (102, 40_000, 0)},
        writes=["a cpu 40000", "pod cpu 40000"],
    ),
    Row(
        name="a pod gets its first memory limit",
        before={"pod": "200m/64Mi -/-", "a": "100m/- -/-"},
        after={"pod": "200m/64Mi -/128Mi", "a": "100m/- -/-"},
        pod=(204, None, 128 * MI),
        containers={"a": (102, 0, 128 * MI)},
        writes=["a memory 134217728", "pod memory 134217728"],
    ),
    Row(
        name="more memory for the pod beside a container with its own limit",
        before={"pod": "200m/128Mi 200m/128Mi", "a": "-/- -/-", "b": EVEN},
        after={"pod": "200m/256Mi 200m/256Mi", "a": "-/- -/-", "b": EVEN},
        pod=(204, 20_000, 256 * MI),
        containers={"a": (204, 20_000, 256 * MI), "b": (102, 10_000, 64 * MI)},
        writes=["pod memory 268435456", "a memory 268435456"],
    ),
]


def test_the_values_after_a_resize(subtests: pytest.Subtests) -> None:
    for row in [*SIDECARS, *POD_LEVEL]:
        with subtests.test(row.name):
            check(row)


def test_a_first_limit_of_the_pod_is_not_set_below_what_its_container_uses() -> None:
    row = next(row for row in POD_LEVEL if row.name == "a pod gets its first memory limit")
    play = Play(source="api").wanting(listed(row, 1))
    play.usage = {play.containers["u1"][0].id: 200 * MI, "": 100 * MI}
    play.want(listed(row, 2))
    found = condition(play, "PodResizeInProgress")
    assert found["reason"] == "Error" and play.writes == []
    assert found["message"] == (
        "cannot decrease memory limits: "
        'attempting to set container "a" memory limit (134217728) below current usage (209715200)'
    )
