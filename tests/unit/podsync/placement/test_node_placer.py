"""From the configuration to what pods get, on machines made of files; what does not go together is one line."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.device_plugins import Device, DeviceResource
from bus.messages.podsync import NodeResources
from services.podsync.adapters.node_placer import device_placer, read_node_placer, with_placement
from services.podsync.core.placement.device_policy import PluginDevices
from services.podsync.core.placement.hint import PlacementError
from services.podsync.core.placement.pod_placement import NOT_PLACED, ContainerDevices, ContainerPlacement
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError
from tests.support.machines.numa import GIB, NumaMachine

GPU = "example.com/gpu"
TWO_NODES = NumaMachine(sockets=2, cores_per_cache=2, threads=2)  # CPUs 0-7


def config(**settings: Any) -> EffectiveConfig:
    return EffectiveConfig(node_name="n1", root_dir="/r", run_dir="/u", log_dir="/l", cert_dir="/c", **settings)


def static(**settings: Any) -> EffectiveConfig:
    return config(cpu_manager_policy="static", **{"system_reserved": {"cpu": "1500m"}, **settings})


def guaranteed(cpus: int) -> Any:
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    return {"metadata": {"uid": "u1"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


def two_gpus(*, on_node: int) -> DeviceResource:
    devices = tuple(Device(id=each, healthy=True, nodes=(on_node,)) for each in ("a", "b"))
    return DeviceResource(resource=GPU, connected=True, since=1.0, devices=devices)


def with_gpus(count: int) -> Any:
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: str(count)}}}]}}


def test_without_a_static_policy_nothing_is_placed(tmp_path: Path) -> None:
    """The machine is not even read: there is none below this root."""
    assert read_node_placer(config(), tmp_path) is None


def test_with_a_policy_of_the_topology_manager_alone_only_devices_are_aligned(tmp_path: Path) -> None:
    placer = read_node_placer(config(topology_manager_policy="restricted"), TWO_NODES.write(tmp_path))
    assert placer is not None
    resources = NodeResources(capacity={"cpu": "8"}, allocatable={"cpu": "8"})
    assert with_placement(resources, placer) == resources
    assert placer.place(guaranteed(3), ()) == NOT_PLACED
    plugins = PluginDevices(resources={GPU: two_gpus(on_node=1)})
    given = placer.place(with_gpus(2), (), plugins).containers["c"]
    assert (given.cpus, given.memory, given.affinity) == (frozenset(), (), frozenset({1}))
    with pytest.raises(PlacementError, match="Resources cannot be allocated with Topology locality"):
        placer.place(with_gpus(3), (), plugins)


def test_without_any_policy_devices_are_given_as_they_come() -> None:
    plugins = PluginDevices(resources={GPU: two_gpus(on_node=1)})
    given = device_placer().place(with_gpus(2), (), plugins).containers["c"]
    assert given == ContainerPlacement(devices=(ContainerDevices(resource=GPU, ids=frozenset({"a", "b"})),))


def test_reserved_cpu_is_rounded_up_to_whole_cpus_which_containers_share(tmp_path: Path) -> None:
    placer = read_node_placer(static(), TWO_NODES.write(tmp_path))
    assert placer is not None and placer.static_cpus and not placer.static_memory
    assert len(placer.cpus.reserved) == 2
    given = placer.place(guaranteed(3), ()).containers["c"].cpus
    assert len(given) == 3 and not given & placer.cpus.reserved
    assert placer.cpus.reserved < placer.shared_pool(()) and len(placer.shared_pool(())) == 8


def test_named_cpus_are_reserved_and_options_count_where_they_are_true(tmp_path: Path) -> None:
    options = {"strict-cpu-reservation": "true", "full-pcpus-only": "false"}
    settings = static(system_reserved={"cpu": "2"}, reserved_system_cpus="1,5", cpu_manager_policy_options=options)
    placer = read_node_placer(settings, TWO_NODES.write(tmp_path))
    assert placer is not None and placer.shared_pool(()) == {0, 2, 3, 4, 6, 7}
    assert len(placer.place(guaranteed(1), ()).containers["c"].cpus) == 1  # half a core


def test_memory_is_bound_to_nodes_beside_what_is_reserved_of_each(tmp_path: Path) -> None:
    settings = config(
        memory_manager_policy="Static",
        kube_reserved={"memory": "1Gi"},
        eviction_hard={"memory.available": "100Mi"},
        reserved_memory=({"numaNode": 0, "limits": {"memory": "1124Mi"}},),
    )
    placer = read_node_placer(settings, TWO_NODES.write(tmp_path))
    assert placer is not None and placer.static_memory and not placer.static_cpus
    block = placer.place(guaranteed(1), ()).containers["c"].memory[0]
    assert (block.kind, block.size, len(block.nodes)) == ("memory", GIB, 1)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (static(system_reserved={"cpu": "1"}, reserved_system_cpus="9"), "cpuManagerPolicy: reserved CPUs 9 are not"),
        (static(system_reserved={"cpu": "9"}), "cpuManagerPolicy: [cpumanager] unable to reserve the required amount"),
        (
            config(memory_manager_policy="Static", reserved_memory=({"numaNode": 0, "limits": {"memory": "1Gi"}},)),
            'memoryManagerPolicy: the total amount "1Gi" of type "memory" is not equal to the value "0"',
        ),
    ],
)
def test_policies_that_do_not_go_with_the_machine_are_one_line(
    tmp_path: Path, settings: EffectiveConfig, line: str
) -> None:
    with pytest.raises(OperatorError) as refused:
        read_node_placer(settings, TWO_NODES.write(tmp_path))
    assert str(refused.value).startswith(line) and "\n" not in str(refused.value)
    assert refused.value.remedy
