"""The subresource `resize` of the API server's double: what it changes, what it refuses, and which servers have it."""

from typing import Any

import pytest

from shared.kube import paths
from shared.kube.interface import ApiStatusError
from shared.model.objects import Object
from tests.fakes.api_resources import V1_20
from tests.fakes.api_server import FakeApiServer
from tests.fakes.virtual_time import virtual_clock

pytestmark = pytest.mark.virtual_time

WEB = paths.pod("default", "web")
SMALL, LARGE = {"cpu": "100m", "memory": "64Mi"}, {"cpu": "200m", "memory": "128Mi"}


def a_pod(**spec: Any) -> Object:
    """A Burstable pod with requests alone, and an init container and resources of its own where given."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": SMALL}}
    return {"metadata": {"name": "web"}, "spec": {"containers": [container], **spec}}


def server(pod: Object, *features: str) -> FakeApiServer:
    found = FakeApiServer(virtual_clock())
    found.put(paths.node("n1"), {"status": {"declaredFeatures": list(features)}})
    found.bind(pod, "n1")
    return found


def containers(**resources: Any) -> Object:
    return {"spec": {"containers": [{"name": "c", "resources": resources}]}}


async def refused(request: Any) -> ApiStatusError:
    with pytest.raises(ApiStatusError) as caught:
        await request
    return caught.value


async def test_it_changes_resources_and_the_generation_alone() -> None:
    api = server(a_pod())
    before = api.get(WEB)
    assert before is not None
    after = await api.client().patch(f"{WEB}/resize", containers(requests=LARGE))
    assert after["spec"]["containers"][0]["resources"] == {"requests": LARGE}
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert {**after["metadata"], "generation": 1, "resourceVersion": ""} == {
        **before["metadata"],
        "generation": 1,
        "resourceVersion": "",
    }
    assert after["status"] == before["status"]


async def test_nothing_else_changes_resources() -> None:
    api = server(a_pod())
    assert (await refused(api.client().patch(WEB, containers(requests=LARGE)))).code == 422
    error = await refused(api.client().patch(f"{WEB}/resize", {"spec": {"activeDeadlineSeconds": 3}}))
    assert error.code == 422 and "only cpu and memory resources are mutable" in str(error)


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"requests": {"cpu": "200m", "memory": None}}, "requests[memory]: Forbidden: resource requests cannot be rem"),
        ({"requests": {"example.com/a": "1"}}, "only cpu and memory resources are mutable"),
        ({"requests": LARGE, "limits": LARGE}, "Pod QOS Class may not change as a result of resizing"),
    ],
)
async def test_a_resize_that_no_node_can_do_is_refused(resources: Any, why: str) -> None:
    api = server(a_pod())
    error = await refused(api.client().patch(f"{WEB}/resize", containers(**resources)))
    assert error.code == 422 and why in str(error)


@pytest.mark.parametrize(
    ("feature", "spec", "patch"),
    [
        (
            "InPlacePodLevelResourcesVerticalScaling",
            {"resources": {"requests": SMALL}},
            {"spec": {"resources": {"requests": LARGE}}},
        ),
        (
            "InPlacePodVerticalScalingInitContainers",
            {"initContainers": [{"name": "i", "image": "busybox", "resources": {"requests": SMALL}}]},
            {"spec": {"initContainers": [{"name": "i", "resources": {"requests": LARGE}}]}},
        ),
    ],
)
async def test_some_resizes_need_a_node_that_declares_them(feature: str, spec: Object, patch: Object) -> None:
    without = server(a_pod(**spec))
    error = await refused(without.client().patch(f"{WEB}/resize", patch))
    assert error.code == 403 and feature in str(error)
    await server(a_pod(**spec), feature).client().patch(f"{WEB}/resize", patch)


async def test_a_server_of_1_20_and_other_kinds_have_no_resize() -> None:
    older = FakeApiServer(virtual_clock(), drops=V1_20)
    older.put(paths.node("n1"), {})
    older.bind(a_pod(), "n1")
    for path in (WEB, paths.node("n1")):
        assert (await refused(older.client().patch(f"{path}/resize", containers(requests=LARGE)))).code == 404
    assert (await refused(server(a_pod()).client().patch(f"{paths.node('n1')}/resize", {}))).code == 404


async def test_a_node_may_not_resize_its_pods() -> None:
    api = server(a_pod())
    error = await refused(api.client("system:node:n1").patch(f"{WEB}/resize", containers(requests=LARGE)))
    assert error.code == 403
