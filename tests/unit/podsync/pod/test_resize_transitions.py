"""What each resize leaves in the pod's cgroup and in the container, worked out by hand from pods.md 5.6 and 6.6.

Amounts: cpu shares = millicores * 1024 / 1000, quota = millicores * 100 per period, memory in bytes.
"""

from typing import Any

import pytest

from tests.unit.podsync.play import Play, a_container, a_pod
from tests.unit.podsync.resize_table import MI, amounts

# before, after, what the pod's cgroup has then and what the container has: shares, quota, memory.
TABLE = [
    ("100m/- -/-", "200m/- -/-", (204, None, None), (204, 0, 0)),
    ("200m/- -/-", "100m/- -/-", (102, None, None), (102, 0, 0)),
    ("100m/64Mi -/-", "100m/128Mi -/-", (102, None, None), (102, 0, 0)),
    ("100m/128Mi -/-", "100m/64Mi -/-", (102, None, None), (102, 0, 0)),
    ("100m/64Mi -/-", "300m/128Mi -/-", (307, None, None), (307, 0, 0)),
    ("100m/- 200m/-", "100m/- 400m/-", (102, 40_000, None), (102, 40_000, 0)),
    ("100m/- 400m/-", "100m/- 200m/-", (102, 20_000, None), (102, 20_000, 0)),
    ("100m/- 200m/-", "200m/- 200m/-", (204, 20_000, None), (204, 20_000, 0)),
    ("100m/- 200m/-", "300m/- 400m/-", (307, 40_000, None), (307, 40_000, 0)),
    ("300m/- 400m/-", "100m/- 200m/-", (102, 20_000, None), (102, 20_000, 0)),
    ("-/64Mi -/128Mi", "-/64Mi -/256Mi", (2, None, 256 * MI), (2, 0, 256 * MI)),
    ("-/64Mi -/256Mi", "-/64Mi -/128Mi", (2, None, 128 * MI), (2, 0, 128 * MI)),
    ("-/64Mi -/128Mi", "-/128Mi -/128Mi", (2, None, 128 * MI), (2, 0, 128 * MI)),
    ("100m/64Mi 200m/128Mi", "100m/64Mi 400m/256Mi", (102, 40_000, 256 * MI), (102, 40_000, 256 * MI)),
    ("100m/64Mi 400m/256Mi", "100m/64Mi 200m/128Mi", (102, 20_000, 128 * MI), (102, 20_000, 128 * MI)),
    ("100m/64Mi 400m/128Mi", "100m/64Mi 200m/256Mi", (102, 20_000, 256 * MI), (102, 20_000, 256 * MI)),
    ("100m/64Mi 200m/256Mi", "100m/64Mi 400m/128Mi", (102, 40_000, 128 * MI), (102, 40_000, 128 * MI)),
    ("100m/64Mi 100m/64Mi", "200m/128Mi 200m/128Mi", (204, 20_000, 128 * MI), (204, 20_000, 128 * MI)),
    ("200m/128Mi 200m/128Mi", "100m/64Mi 100m/64Mi", (102, 10_000, 64 * MI), (102, 10_000, 64 * MI)),
    ("200m/64Mi 200m/64Mi", "100m/128Mi 100m/128Mi", (102, 10_000, 128 * MI), (102, 10_000, 128 * MI)),
    ("100m/64Mi -/-", "100m/64Mi 200m/-", (102, 20_000, None), (102, 20_000, 0)),
    ("100m/64Mi -/-", "100m/64Mi -/128Mi", (102, None, 128 * MI), (102, 0, 128 * MI)),
    ("100m/64Mi -/-", "100m/64Mi 200m/128Mi", (102, 20_000, 128 * MI), (102, 20_000, 128 * MI)),
]


@pytest.mark.long
@pytest.mark.parametrize("policy", ["", "RestartContainer"])
@pytest.mark.parametrize(("before", "after", "of_pod", "of_container"), TABLE)
def test_the_values_after_a_resize(
    before: str, after: str, of_pod: tuple[Any, ...], of_container: tuple[int, ...], policy: str
) -> None:
    policies = [{"resourceName": name, "restartPolicy": policy} for name in ("cpu", "memory")] if policy else []
    play = Play(source="api")
    for generation, text in enumerate((before, after), start=1):
        pod = a_pod(containers=[a_container("c", resources=amounts(text), resizePolicy=policies)])
        pod["metadata"]["generation"] = generation
        play.want(pod)
    cgroup, newest = play.cgroups["u1"], play.resources[play.containers["u1"][-1].id]
    assert (cgroup.cpu_shares, cgroup.cpu_quota, cgroup.memory_limit) == of_pod
    assert tuple(newest.get(key, 0) for key in ("cpu_shares", "cpu_quota", "memory_limit_in_bytes")) == of_container
    assert play.running("u1") == [("c", 1 if policy else 0)]
    shown = play.statuses["u1"].status
    assert shown["containerStatuses"][0]["resources"] == amounts(after)
    assert not [c for c in shown["conditions"] if "Resize" in c["type"]]
