"""The status setters: what they write, what they leave alone, and that no odd Node stops them."""

import re
from typing import Any

import pytest

from bus.messages.bootstrap import NodeConfigStatus
from bus.messages.pleg import NodeImage, NodeObserved, RuntimeHandler
from bus.messages.podsync import NodeResources
from services.status.core.initial_node import initial_node, reconciled
from services.status.core.node_capacity import given_allocatable
from services.status.core.node_conditions import with_api_conditions
from services.status.core.node_facts import HostNetwork, MachineFacts, NodeFacts, NodeIdentity, kubelet_version
from services.status.core.node_status import rebooted, volumes_in_use, with_status
from shared.model.config_source import ConfigSource
from shared.model.frozen_copy import replace

OBSERVED = NodeObserved(
    observed_at=1,
    runtime_reachable=True,
    runtime_name="containerd",
    runtime_version="2.0.1",
    runtime_handlers=(RuntimeHandler(name="", user_namespaces=True), RuntimeHandler(name="runc")),
)
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok", "lastTransitionTime": "t5"}
PRESSURE = {"type": "DiskPressure", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "t4"}
# As semver.org has it, without the numbers' own groups.
SEMANTIC_VERSION = (
    r"(?P<release>(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*))"
    r"(?:-(?P<prerelease>(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+(?P<build>[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)

FACTS = NodeFacts(
    identity=NodeIdentity(name="n1", kubelet_version="v1.36.0+bulkhead.1", declared_features=("A", "B")),
    machine=MachineFacts(machine_id="m", system_uuid="s", boot_id="b", kernel_version="6.1", os_image="Debian"),
    now="t9",
    network=HostNetwork(assigned=frozenset({"10.0.0.1"}), default_routes=("10.0.0.1",)),
    resources=NodeResources(
        capacity={"cpu": "4", "hugepages-2Mi": "0"},
        allocatable={"cpu": "3", "hugepages-2Mi": "0"},
        devices_known=True,
    ),
    observed=OBSERVED,
    images=(NodeImage(id="i", names=tuple("abcdefg"), size_bytes=9), NodeImage(id="j", names=(), size_bytes=1)),
    conditions=(PRESSURE, READY),
)


def status(node: dict[str, Any], facts: NodeFacts = FACTS) -> dict[str, Any]:
    return dict(with_status(node, facts)[0]["status"])


def test_what_a_node_without_status_gets() -> None:
    written = status({})
    assert written["nodeInfo"] == {
        "machineID": "m",
        "systemUUID": "s",
        "bootID": "b",
        "kernelVersion": "6.1",
        "osImage": "Debian",
        "containerRuntimeVersion": "containerd://2.0.1",
        "kubeletVersion": "v1.36.0+bulkhead.1",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    assert written["images"] == [{"names": list("abcde"), "sizeBytes": 9}, {"sizeBytes": 1}]
    assert [handler["name"] for handler in written["runtimeHandlers"]] == ["", "runc"]
    assert written["runtimeHandlers"][0]["features"] == {"recursiveReadOnlyMounts": False, "userNamespaces": True}
    assert written["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert [c["type"] for c in written["conditions"]] == ["DiskPressure", "Ready"]
    assert {c["lastHeartbeatTime"] for c in written["conditions"]} == {"t9"}
    assert "features" not in written and "volumesInUse" not in written


def test_options_of_mounts_are_declared_where_gate_and_runtime_have_them() -> None:
    """Until the runtime is known, what the Node says stays."""
    feature = "VolumeBindMountOptions"
    gated = replace(FACTS, identity=replace(FACTS.identity, bind_mount_options=True))
    assert FACTS.observed is not None
    able = replace(FACTS.observed, mount_options=True)
    assert status({}, replace(gated, observed=able))["declaredFeatures"] == ["A", "B", feature]
    assert status({}, replace(FACTS, observed=able))["declaredFeatures"] == ["A", "B"]
    before: dict[str, Any] = {"status": {"declaredFeatures": ["A", feature]}}
    assert status(before, gated)["declaredFeatures"] == ["A", "B"]
    assert status(before, replace(gated, observed=None))["declaredFeatures"] == ["A", "B", feature]
    assert status({}, replace(gated, observed=None))["declaredFeatures"] == ["A", "B"]


def test_the_features_of_this_agent_are_declared_by_updates_whatever_another_kubelet_declared() -> None:
    befores: list[dict[str, Any]] = [{}, {"declaredFeatures": ["B", "C"]}]
    for before in befores:
        assert status({"status": before})["declaredFeatures"] == ["A", "B"]
    assert "declaredFeatures" not in initial_node(FACTS)["status"]
    silent = replace(FACTS, identity=replace(FACTS.identity, declared_features=None))
    assert status({"status": {"declaredFeatures": ["C"]}}, silent)["declaredFeatures"] == ["C"]


def test_what_is_not_known_stays_as_it_is() -> None:
    unknown = replace(FACTS, network=None, resources=None, observed=None, images=None, conditions=())
    existing = {
        "addresses": [{"type": "Hostname", "address": "n1"}],
        "capacity": {"cpu": "8"},
        "allocatable": {"cpu": "7"},
        "images": [{"sizeBytes": 3}],
        "conditions": [READY],
        "runtimeHandlers": [{"name": "x"}],
        "volumesInUse": ["kubernetes.io/csi/d^v"],
        "nodeInfo": {"containerRuntimeVersion": "cri-o://1"},
    }
    written = status({"status": existing}, unknown)
    for name in existing.keys() - {"nodeInfo"}:
        assert written[name] == existing[name]
    assert written["nodeInfo"]["containerRuntimeVersion"] == "cri-o://1"


def test_capacity_starts_from_what_is_there() -> None:
    existing = {
        "capacity": {"cpu": "1", "example.com/gpu": "2", "attachable-volumes-x": "5"},
        "allocatable": {"cpu": "1", "example.com/gone": "1", "example.com/gpu": "0"},
    }
    written = status({"status": existing})
    assert written["capacity"] == {
        "cpu": "4",
        "hugepages-2Mi": "0",
        "example.com/gpu": "2",
        "attachable-volumes-x": "5",
    }
    assert written["allocatable"] == {
        "cpu": "3",
        "hugepages-2Mi": "0",
        "example.com/gpu": "0",
        "attachable-volumes-x": "5",
    }


def foreign(before: dict[str, dict[str, str]], **facts: Any) -> tuple[str | None, str | None]:
    """Capacity and allocatable of `x/r`."""
    written = status({"status": before}, replace(FACTS, **facts))
    return written["capacity"].get("x/r"), written["allocatable"].get("x/r")


@pytest.mark.parametrize(
    ("capacity", "allocatable", "given", "expected"),
    [
        ("8", "0", (), "0"),  # devices that are not healthy
        ("8", "3", (), "3"),
        ("8", None, (), "8"),
        ("8", "4", ("4",), "8"),  # this agent's own follows the capacity
        ("8", "4", ("2", "4"), "8"),
        ("8", "4", ("5",), "4"),
        ("8", "8", (), "8"),
        ("2", "3", (), "2"),
        ("1k", "1000", (), "1000"),
        ("odd", "3", (), "3"),
    ],
)
def test_allocatable_set_by_another_writer_is_never_raised(
    capacity: str, allocatable: str | None, given: tuple[str, ...], expected: str
) -> None:
    before = {"capacity": {"x/r": capacity}, "allocatable": {"x/r": allocatable} if allocatable else {}}
    assert foreign(before, given={"x/r": given}) == (capacity, expected)


def test_what_a_device_plugin_checkpoint_names_is_zero() -> None:
    devices = frozenset({"x/r"})
    before = {"capacity": {"x/r": "8"}, "allocatable": {"x/r": "8"}}
    assert foreign(before, devices=devices) == foreign({}, devices=devices) == ("0", "0")
    assert foreign(before, devices=devices, given={"x/r": ("8",)}) == ("0", "0")


def test_what_a_device_plugin_checkpoint_names_stays_until_the_devices_of_this_node_are_known() -> None:
    assert FACTS.resources is not None
    unknown = replace(FACTS.resources, devices_known=False)
    before = {"capacity": {"x/r": "8"}, "allocatable": {"x/r": "7"}}
    assert foreign(before, devices=frozenset({"x/r"}), resources=unknown) == ("8", "7")
    known = replace(FACTS.resources, capacity={"x/r": "9"}, allocatable={"x/r": "8"})
    assert foreign(before, devices=frozenset({"x/r"}), resources=known) == ("9", "8")


def test_only_amounts_that_this_agent_gave_are_its_own() -> None:
    before = {"capacity": {"x/a": "1", "x/b": "2", "x/c": "3"}, "allocatable": {"x/b": "2", "x/c": "2"}}
    given: dict[str, tuple[str, ...]] = {"x/c": ("2",), "x/gone": ("1",)}
    after = status({"status": before}, replace(FACTS, given=given))
    assert FACTS.resources is not None
    assert given_allocatable(before, after, FACTS.resources, (), given) == {"x/a": ("1",), "x/c": ("2", "3")}


def test_a_zero_for_a_device_plugin_checkpoint_is_not_remembered_as_an_amount_to_raise() -> None:
    assert FACTS.resources is not None
    given: dict[str, tuple[str, ...]] = {"x/b": ("4",)}
    before = {"capacity": {"x/b": "4"}, "allocatable": {"x/b": "4"}}
    devices = frozenset({"x/r", "x/b"})
    after = status({"status": before}, replace(FACTS, devices=devices, given=given))
    given = given_allocatable(before, after, FACTS.resources, devices, given)
    assert given == {}
    unhealthy = {"capacity": {"x/r": "8"}, "allocatable": {"x/r": "0"}}
    assert foreign(unhealthy, given=given) == ("8", "0")


@pytest.mark.parametrize(("limit", "shown"), [(50, 2), (1, 1), (0, 0), (-1, 2)])
def test_as_many_images_as_configured(limit: int, shown: int) -> None:
    facts = replace(FACTS, identity=replace(FACTS.identity, max_images=limit))
    assert len(status({}, facts).get("images", [])) == shown


def test_transition_times_are_those_of_the_node_while_the_status_is_the_same() -> None:
    theirs = {"lastTransitionTime": "t1", "reason": "old", "message": "old"}
    existing = [{"type": "Custom", "status": "True"}, READY | theirs, PRESSURE | theirs]
    written = {c["type"]: c for c in status({"status": {"conditions": existing}})["conditions"]}
    assert written["Custom"] == {"type": "Custom", "status": "True"}
    assert (written["Ready"]["lastTransitionTime"], written["Ready"]["reason"]) == ("t1", "KubeletReady")
    assert (written["DiskPressure"]["lastTransitionTime"], written["DiskPressure"]["reason"]) == ("t1", "old")


def test_a_status_that_differs_from_the_nodes_moves_the_transition_time() -> None:
    existing = [READY | {"status": "Unknown", "lastTransitionTime": "t1"}]
    assert status({"status": {"conditions": existing}})["conditions"][0]["lastTransitionTime"] == "t9"


def test_a_setter_that_fails_is_named_and_stops_no_other() -> None:
    facts = replace(FACTS, network=HostNetwork())
    node, problems = with_status({"status": {"addresses": [{"type": "Hostname", "address": "old"}]}}, facts)
    assert len(problems) == 1 and problems[0].startswith("can't get ip address of node n1")
    assert node["status"]["addresses"] == [{"type": "Hostname", "address": "old"}]
    assert node["status"]["capacity"]["cpu"] == "4"


@pytest.mark.parametrize(
    "node",
    [
        {"status": None, "metadata": None},
        {"status": "x"},
        {"status": {"conditions": 1, "capacity": [], "allocatable": 2, "nodeInfo": "x", "daemonEndpoints": 3}},
        {"status": {"conditions": [None, {}, {"type": "Ready", "lastTransitionTime": 7}], "addresses": [1]}},
        {"metadata": {"labels": [], "annotations": 5}, "spec": 1},
    ],
)
def test_odd_nodes_are_set_right(node: dict[str, Any]) -> None:
    for odd in (with_status(node, FACTS)[0], with_status(reconciled(node, FACTS), FACTS)[0]):
        assert odd["status"]["capacity"]["cpu"] == "4"
        assert odd["metadata"]["labels"]["kubernetes.io/arch"] == "amd64"
        assert [c["status"] for c in odd["status"]["conditions"] if c.get("type") == "Ready"] == ["True"]


def test_setting_twice_changes_nothing() -> None:
    once, _ = with_status({}, FACTS)
    assert with_status(once, FACTS)[0] == once


def test_swap_is_shown_only_where_there_is_some() -> None:
    facts = replace(FACTS, machine=replace(FACTS.machine, swap_capacity=1024))
    node, _ = with_status({}, facts)
    assert node["status"]["nodeInfo"]["swap"] == {"capacity": 1024}
    assert "swap" not in status(node)["nodeInfo"]


def test_a_node_for_a_cloud_provider_is_tainted_and_annotated() -> None:
    taint = {"key": "a", "value": "", "effect": "NoExecute"}
    given = replace(FACTS.identity, external_cloud_provider=True, node_ips=("10.0.0.1",), taints=(taint,))
    node = initial_node(replace(FACTS, identity=given))
    assert [t["key"] for t in node["spec"]["taints"]] == ["a", "node.cloudprovider.kubernetes.io/uninitialized"]
    assert node["metadata"]["annotations"] == {
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "alpha.kubernetes.io/provided-node-ip": "10.0.0.1",
    }


def test_labels_of_the_command_line_override_and_an_empty_default_one_is_removed() -> None:
    given = replace(FACTS.identity, labels={"topology.kubernetes.io/zone": "", "kubernetes.io/hostname": "h"})
    facts = replace(FACTS, identity=given)
    assert initial_node(facts)["metadata"]["labels"]["kubernetes.io/hostname"] == "h"
    existing = {"metadata": {"labels": {"topology.kubernetes.io/zone": "z", "own": "x"}}}
    labels = reconciled(existing, facts)["metadata"]["labels"]
    assert labels["own"] == "x" and labels["kubernetes.io/hostname"] == "h"
    assert "topology.kubernetes.io/zone" not in labels


def test_a_start_removes_huge_pages_that_are_gone_and_the_annotation_that_is_disabled() -> None:
    annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true", "own": "x"}
    existing = {
        "metadata": {"annotations": annotations},
        "status": {"capacity": {"hugepages-1Gi": "1Gi", "hugepages-2Mi": "0"}, "allocatable": {"hugepages-1Gi": "1Gi"}},
    }
    node = reconciled(existing, replace(FACTS, identity=replace(FACTS.identity, controller_attach_detach=False)))
    assert node["metadata"]["annotations"] == {"own": "x"}
    assert node["status"] == {"capacity": {"hugepages-2Mi": "0"}, "allocatable": {}}


def test_another_boot_id_is_a_reboot() -> None:
    assert rebooted({"status": {"nodeInfo": {"bootID": "a"}}}, FACTS) == "Node n1 has been rebooted, boot id: b"
    for node in ({}, {"status": {"nodeInfo": {"bootID": ""}}}, {"status": {"nodeInfo": {"bootID": "b"}}}):
        assert rebooted(node, FACTS) == ""


@pytest.mark.parametrize("release", ["1.36", "1.37"])
@pytest.mark.parametrize("own", ["0.1.0", "0.2.0.dev3+g12 ab", ""])
def test_the_version_is_the_release_and_not_one_before_it(own: str, release: str) -> None:
    version = re.fullmatch(SEMANTIC_VERSION, kubelet_version(own, release).removeprefix("v"))
    assert version is not None
    assert (version["release"], version["prerelease"]) == (
        f"{release}.0",
        None,
    )  # a pre-release sorts before its release
    assert version["build"].startswith("bulkhead.")


def test_the_api_servers_conditions_are_the_baseline() -> None:
    theirs = [
        READY | {"lastTransitionTime": "t0"},
        PRESSURE | {"status": "True", "lastTransitionTime": "t1"},
        {"a": 1},
        5,
    ]
    (ready,) = with_api_conditions((READY,), [theirs[0]])
    assert ready["lastTransitionTime"] == "t0"
    both = with_api_conditions((PRESSURE,), theirs)
    assert [(c["type"], c["status"], c["lastTransitionTime"]) for c in both] == [
        ("DiskPressure", "False", "t4"),
        ("Ready", "True", "t0"),
    ]
    assert with_api_conditions((READY,), None) == (READY,)


def test_volumes_in_use_are_written_once_they_are_known() -> None:
    before = {"status": {"volumesInUse": ["kubernetes.io/csi/old^1"]}}
    assert status(before)["volumesInUse"] == ["kubernetes.io/csi/old^1"]
    assert status(before, replace(FACTS, volumes_in_use=("a", "b")))["volumesInUse"] == ["a", "b"]
    assert "volumesInUse" not in status(before, replace(FACTS, volumes_in_use=()))
    assert volumes_in_use(before) == ("kubernetes.io/csi/old^1",)
    odd: list[dict[str, Any]] = [{}, {"status": None}, {"status": {"volumesInUse": {}}}]
    assert [volumes_in_use(node) for node in odd] == [(), (), ()]


def test_the_configuration_is_shown_once_it_is_known() -> None:
    source = ConfigSource(namespace="ns", name="a", uid="u", resource_version="7", kubelet_config_key="kubelet")
    shown = {
        "configMap": {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "7", "kubeletConfigKey": "kubelet"}
    }
    before = {"status": {"config": {"assigned": {"configMap": {}}, "error": "old"}}}
    assert status(before)["config"] == before["status"]["config"]
    assert status(before, replace(FACTS, config=NodeConfigStatus()))["config"] == {}
    config = NodeConfigStatus(assigned=source, error="why")
    assert status(before, replace(FACTS, config=config))["config"] == {"assigned": shown, "error": "why"}
    config = NodeConfigStatus(assigned=source, active=source, last_known_good=source)
    assert status(before, replace(FACTS, config=config))["config"] == {
        "assigned": shown,
        "active": shown,
        "lastKnownGood": shown,
    }
    assert "config" not in initial_node(replace(FACTS, config=config))["status"]
