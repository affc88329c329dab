"""Extended resources that a claim backs are not asked of device plugins, and take nothing of the Node's amounts
(node.md 4.15, pods.md 3.2)."""

from typing import Any

import pytest

from services.podsync.core.pod.claim_status import without_claimed_resources
from services.podsync.core.pod.events import NodeChanged
from tests.unit.podsync.admission.test_device_admission import GPU, NIC, a_play, away, devices_of, plugin, with_devices
from tests.unit.podsync.claim_volume import ClaimVolume
from tests.unit.podsync.play import Pod


def backed(pod: Pod, *containers: str, resource: str = GPU) -> Pod:
    """The pod with a claim for the resource of these containers."""
    mappings = [{"containerName": name, "resourceName": resource, "requestName": "r"} for name in containers]
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "web-ext", "requestMappings": mappings}}
    return pod | {"status": status}


def test_no_plugin_is_asked_for_a_resource_that_a_claim_backs() -> None:
    play = a_play(source="api")
    volume = ClaimVolume(play)
    play.want(backed(with_devices(gpu=1), "c"))
    volume.act()
    assert (devices_of(play), play.prepared) == ({}, [])
    assert play.running("u1") == [("c", 0)]
    play.restart()
    assert (devices_of(play), play.running("u1")) == ({}, [("c", 0)])
    assert play.core.tracked["u1"].saved.pending_resize is None


def test_another_container_or_another_resource_of_the_pod_has_devices_of_plugins() -> None:
    play = a_play(source="api", devices={GPU: plugin("a", "b"), NIC: plugin("x", "y", name=NIC)})
    volume = ClaimVolume(play)
    play.want(backed(with_devices(gpu=1, nic=1, containers=("c", "d")), "c"))
    volume.act()
    assert devices_of(play) == {("c", NIC): ["x"], ("d", GPU): ["a"], ("d", NIC): ["y"]}
    assert play.running("u1") == [("c", 0), ("d", 0)]


@pytest.mark.parametrize("plugins", [{}, {GPU: away("a")}])
def test_it_does_not_wait_for_a_plugin(plugins: dict[str, Any]) -> None:
    play = a_play(source="api", devices=plugins, plugins_listed=bool(plugins))
    volume = ClaimVolume(play)
    play.want(backed(with_devices(gpu=1), "c"))
    volume.act()
    assert play.running("u1") == [("c", 0)]


@pytest.mark.parametrize(("containers", "rejected"), [((), f"OutOf{GPU}"), (("c",), "")])
def test_it_takes_nothing_of_what_the_node_has(containers: tuple[str, ...], rejected: str) -> None:
    play = a_play(source="api", devices={})
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {GPU: "0"}}}
    play.handle(NodeChanged(node=node))
    play.want(backed(with_devices(gpu=1), *containers))
    assert play.core.tracked["u1"].saved.rejected == rejected


def test_only_the_named_resources_of_the_named_containers_are_left_out() -> None:
    pod = with_devices(gpu=1, nic=2, containers=("c", "d"))
    pod["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": {GPU: "1", "cpu": "1"}}}]
    without = without_claimed_resources(backed(pod, "c", "i"))
    containers = (*without["spec"]["initContainers"], *without["spec"]["containers"])
    amounts = {container["name"]: container["resources"]["limits"] for container in containers}
    assert amounts == {"i": {"cpu": "1"}, "c": {NIC: "2"}, "d": {GPU: "1", NIC: "2"}}
    assert without_claimed_resources(pod) is pod
    assert without_claimed_resources(unknown := backed(pod, "x")) is unknown
