"""The table of what a changed setting costs running pods: it names settings that exist, and none that matters lacks."""

from dataclasses import fields

import pytest

from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import EVERY_GATE
from shared.config.pod_costs import NO_COST, POD_COSTS, PodCost, PodEffect, gravest, pod_cost
from shared.config.readers import DOCUMENT_READERS, FIELD_READERS, FIXED, GATE_READERS

# What podsync, volume or sources reads and running pods do not notice, whatever its value.
_NAMES = (
    "cert_dir change_detection_strategy container_log_max_files container_log_max_size container_log_max_workers "
    "container_log_monitor_interval controller_attach_detach cpu_manager_reconcile_period "
    "credential_provider_bin_dir credential_providers device_plugin_wait device_unhealthy_action dynamic_config_dir "
    "emulated_version eviction_max_pod_grace_period eviction_minimum_reclaim eviction_pressure_transition_period "
    "file_check_frequency http_check_frequency image_gc_high_threshold_percent image_gc_low_threshold_percent "
    "image_maximum_gc_age image_minimum_gc_age image_service_endpoint kube_api_burst kube_api_qps "
    "kube_reserved_cgroup kubelet_cgroups max_container_restart_period max_open_files max_parallel_image_pulls "
    "maximum_dead_containers maximum_dead_containers_per_container minimum_container_ttl node_ips node_labels "
    "pod_cidr offline_pods oom_score_adj register_with_taints registry_burst registry_pull_qps runtime_cgroups "
    "runtime_request_timeout serialize_image_pulls shutdown_grace_period shutdown_grace_period_by_pod_priority "
    "shutdown_grace_period_critical_pods sync_frequency system_cgroups system_reserved_cgroup tracing "
    "tracing_endpoint tracing_rate volume_plugin_dir "
)
WITHOUT_COST = frozenset(_NAMES.split())


def test_each_row_is_of_a_setting_that_exists() -> None:
    settings = {field.name for field in fields(EffectiveConfig)} | {"joins_cluster"} | DOCUMENT_READERS.keys()
    gates = {f"featureGates.{gate}" for gate in EVERY_GATE}
    assert POD_COSTS.keys() <= settings | gates


def test_each_setting_that_starts_pods_has_a_row_or_is_known_to_cost_nothing() -> None:
    of_pods = {name for name, readers in FIELD_READERS.items() if readers & {"podsync", "sources", "volume"}}
    assert of_pods - POD_COSTS.keys() - WITHOUT_COST == set()
    assert not WITHOUT_COST & POD_COSTS.keys()
    assert DOCUMENT_READERS.keys() <= POD_COSTS.keys()


def test_a_setting_that_a_reload_refuses_has_the_cost_of_a_new_start() -> None:
    assert {name for name in FIXED if name in POD_COSTS} == {"docker", "embedded_containerd", "node_name", "root_dir"}


def test_the_cost_depends_on_the_direction(subtests: pytest.Subtests) -> None:
    for setting, old, new, effect in [
        ("cgroups_per_qos", False, True, PodEffect.RESTART),
        ("cgroups_per_qos", True, False, PodEffect.LATER),
        ("max_pods", 110, 50, PodEffect.LATER),
        ("max_pods", 50, 110, PodEffect.NONE),
        ("pods_per_core", 0, 10, PodEffect.LATER),
        ("pods_per_core", 10, 0, PodEffect.NONE),
        ("static_pod_path", "/a", "/b", PodEffect.END),
        ("static_pod_path", "", "/b", PodEffect.NONE),
        ("static_pod_url", "http://a", "", PodEffect.END),
        ("port", 1, 2, PodEffect.NONE),
        ("cpu_manager_policy", "static", "none", PodEffect.UNMANAGED),
        ("cpu_manager_policy", "none", "static", PodEffect.LATER),
        ("memory_manager_policy", "Static", "None", PodEffect.UNMANAGED),
        ("memory_manager_policy", "None", "Static", PodEffect.LATER),
        ("cpu_manager_policy_options", {}, {"strict-cpu-reservation": "true"}, PodEffect.UNMANAGED),
        ("cpu_manager_policy_options", {"strict-cpu-reservation": "true"}, {}, PodEffect.UNMANAGED),
        ("cpu_manager_policy_options", {}, {"full-pcpus-only": "true"}, PodEffect.LATER),
        ("reserved_memory", (), ({"numaNode": 0},), PodEffect.UNMANAGED),
        ("reserved_system_cpus", "0", "0-1", PodEffect.UNMANAGED),
    ]:
        with subtests.test(setting):
            assert pod_cost(setting, old, new).effect is effect


def test_the_gravest_cost_counts() -> None:
    evict, later = PodCost(PodEffect.EVICT, "a"), PodCost(PodEffect.LATER, "b")
    assert gravest((NO_COST, later, evict)) is evict
    assert gravest(()) is NO_COST
    assert "featureGates.MemoryQoS" in POD_COSTS and "MemoryQoS" in GATE_READERS
