"""Manifests as people write them: what is wrong is named, what ran keeps running, nothing crashes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from tests.support.agents.world import World, busybox_pod

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

BAD = {
    "not-yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: [",
    "not-a-pod": "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n",
    "no-name": "apiVersion: v1\nkind: Pod\nmetadata: {}\nspec: {containers: [{name: c, image: i}]}\n",
    "no-containers": "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {}\n",
    "wrong-type": "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: nothing}\n",
    "binary": "\x00\x01\x02",
    "empty": "",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World() as world:
        yield world


@pytest.mark.parametrize("name", sorted(BAD))
async def test_a_bad_manifest_is_named_with_its_reason_and_nothing_crashes(world: World, name: str) -> None:
    pids = {service: world.pid_of(service) for service in SERVICES}
    world.put_manifest(name, BAD[name])
    await world.wait_for(lambda: f"{name}.yaml" in world.log_of("sources"), f"{name}.yaml to be named in the log")
    await world.wait_for(lambda: f"{name}.yaml" in world.log_of("status"), f"an event about {name}.yaml")
    line = next(line for line in world.log_of("sources").splitlines() if f"{name}.yaml" in line)
    assert "Traceback" not in world.log_of("sources"), line
    assert {service: world.pid_of(service) for service in SERVICES} == pids
    world.remove_manifest(name)


async def test_a_running_pod_survives_an_invalid_manifest_and_follows_the_corrected_one(world: World) -> None:
    world.put_manifest("edited", busybox_pod("edited"))
    before = await world.wait_running("edited")
    world.put_manifest("edited", "kind: Pod\nmetadata: {name: edited")
    await world.wait_for(lambda: "edited.yaml" in world.log_of("sources"), "the bad edit to be named")
    pid = world.kill("sources")
    await world.wait_back("sources", pid)
    after = await world.runtime_pod("edited")
    assert after is not None and [c.id for c in after.containers] == [c.id for c in before.containers]
    world.put_manifest("edited", busybox_pod("edited", "sleep", "2000000"))

    async def replaced() -> bool:
        pods = [p for p in (await world.runtime.observe()).values() if p.name == after.name and p.uid != before.uid]
        return bool(pods) and bool(pods[0].containers)

    await world.wait_for(replaced, "the corrected manifest to run")
    world.remove_manifest("edited")


async def test_a_missing_image_is_shown_in_the_status_and_delays_no_other_pod(world: World) -> None:
    missing = busybox_pod("missing")
    missing["spec"]["containers"][0] |= {"image": "127.0.0.1:1/no/such:1", "imagePullPolicy": "IfNotPresent"}
    world.put_manifest("missing", missing)

    async def shown() -> bool:
        pod = await world.pod("missing")
        statuses = (pod or {}).get("status", {}).get("containerStatuses") or [{}]
        return statuses[0].get("state", {}).get("waiting", {}).get("reason") in ("ErrImagePull", "ImagePullBackOff")

    await world.wait_for(shown, "the reason in the status")
    world.put_manifest("other", busybox_pod("other"))
    await world.wait_running("other")
    for name in ("missing", "other"):
        world.remove_manifest(name)
        await world.wait_gone(name)
