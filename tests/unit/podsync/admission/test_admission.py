"""Who is admitted: the reasons and messages of the reference, and who must go for a critical pod (pods.md 3)."""

from typing import Any

import pytest

from services.podsync.core.admission.node_view import MachineFacts, NodeView, node_view
from services.podsync.core.admission.taken import taken_by
from services.podsync.core.admission.verdict import Verdict, admit
from services.podsync.core.placement.pod_placement import ContainerDevices, ContainerPlacement, PodPlacement
from services.podsync.core.pod.allocation import allocation_of
from services.podsync.core.pod.events import NodeChanged
from shared.model.frozen_copy import replace
from shared.podspec.defaults import apply_defaults
from tests.unit.podsync.play import Play

FACTS = MachineFacts(
    node_name="n1",
    labels={"kubernetes.io/os": "linux", "disk": "ssd", "cores": "8"},
    allocatable={"cpu": "2", "memory": "1Gi", "pods": "3", "ephemeral-storage": "10Gi"},
    kernel=(6, 1),
)


def a_view(**changes: Any) -> NodeView:
    facts = changes.get("facts", FACTS)
    own = {"facts": facts, "labels": FACTS.labels, "taints": (), "allocatable": facts.allocatable}
    return NodeView(**{**own, **changes})


def a_pod(uid: str = "u", requests: dict[str, str] | None = None, source: str = "api", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i:1", "resources": {"requests": requests or {}}, **spec.pop("container", {})}
    metadata = {
        "name": uid,
        "namespace": "d",
        "uid": uid,
        "annotations": {"kubernetes.io/config.source": source, **spec.pop("annotations", {})},
        "labels": spec.pop("labels", {}),
    }
    pod = {"metadata": metadata, "spec": {"containers": [container], **spec}}
    apply_defaults(pod)
    return pod


def verdict(pod: dict[str, Any], *others: dict[str, Any], phase: str = "Pending", **view: Any) -> Verdict:
    """Without the allocation, which is that of the pod itself where it is admitted."""
    given = admit(pod, phase, a_view(**view), taken_by(others))
    assert given.allocation == (None if given.reason else allocation_of(pod))
    return replace(given, allocation=None)


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_a_modest_pod_is_admitted() -> None:
    assert verdict(a_pod(requests={"cpu": "100m"})) == Verdict()


NO_ROOM = "Node didn't have enough resource: "
AFFINITY = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
SYSCTL = {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}
HOST_SYSCTL = {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}


def test_a_refusal_has_the_kubelets_reason_and_words(subtests: pytest.Subtests) -> None:
    for pod, reason, message in [
        (a_pod(requests={"cpu": "3"}), "OutOfcpu", NO_ROOM + "cpu, requested: 3000, used: 0, capacity: 2000"),
        (
            a_pod(requests={"memory": "2Gi"}),
            "OutOfmemory",
            NO_ROOM + "memory, requested: 2147483648, used: 0, capacity: 1073741824",
        ),
        (
            a_pod(requests={"ephemeral-storage": "11Gi"}),
            "OutOfephemeral-storage",
            NO_ROOM + "ephemeral-storage, requested: 11811160064, used: 0, capacity: 10737418240",
        ),
        (a_pod(nodeSelector={"disk": "hdd"}), "NodeAffinity", AFFINITY),
        (a_pod(affinity=affinity(expression("disk", "In", "hdd"))), "NodeAffinity", AFFINITY),
        (a_pod(affinity=affinity({})), "NodeAffinity", AFFINITY),
        (
            a_pod(nodeName="n2"),
            "NodeName",
            "Predicate NodeName failed: node(s) didn't match the requested node name",
        ),
        (
            a_pod(os={"name": "windows"}),
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ),
        (
            a_pod(labels={"kubernetes.io/os": "windows"}),
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ),
        (
            a_pod(securityContext={"supplementalGroupsPolicy": "Strict"}),
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        ),
        (a_pod(securityContext=SYSCTL), "SysctlForbidden", 'forbidden sysctl: "kernel.msgmax" not allowlisted'),
        (
            a_pod(securityContext=HOST_SYSCTL, hostNetwork=True),
            "SysctlForbidden",
            'forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled',
        ),
        (
            a_pod(container={"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}),
            "AppArmor",
            "Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ),
        (
            a_pod(annotations={"container.apparmor.security.beta.kubernetes.io/c": "localhost/x"}),
            "AppArmor",
            "Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ),
    ]:
        with subtests.test(f"{pod!r:.80}"):
            given = verdict(pod)
            assert (given.reason, given.message) == (reason, message)


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(nodeSelector={"disk": "ssd"}),
        a_pod(affinity=affinity(expression("disk", "In", "hdd"), expression("disk", "NotIn", "hdd"))),
        a_pod(affinity=affinity(expression("cores", "Gt", "4"), {})),
        a_pod(affinity=affinity(expression("gone", "DoesNotExist"))),
        a_pod(affinity=affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})),
        a_pod(nodeName="n1"),
        a_pod(requests={"example.com/gpu": "1"}),
        a_pod(securityContext=HOST_SYSCTL),
        a_pod(securityContext={"sysctls": [{"name": "net/ipv4/tcp_syncookies", "value": "1"}]}),
        a_pod(container={"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}),
    ],
)
def test_what_fits_is_admitted(pod: dict[str, Any]) -> None:
    assert verdict(pod) == Verdict()


def test_an_allowed_unsafe_sysctl_is_admitted() -> None:
    facts = MachineFacts(node_name="n1", allowed_unsafe_sysctls=("kernel.msg*",))
    assert admit(a_pod(securityContext=SYSCTL), "Pending", a_view(facts=facts), taken_by(())).reason == ""


def test_an_old_kernel_has_fewer_safe_sysctls() -> None:
    pod = a_pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]})
    old = MachineFacts(node_name="n1", kernel=(4, 4))
    assert admit(pod, "Pending", a_view(facts=old), taken_by(())).reason == "SysctlForbidden"
    assert admit(pod, "Pending", a_view(), taken_by(())).reason == ""


@pytest.mark.parametrize(
    ("name", "kernel"), [("net.ipv4.tcp_slow_start_after_idle", (4, 15)), ("net.ipv4.tcp_notsent_lowat", (4, 6))]
)
def test_two_sysctls_are_safe_since_kubernetes_1_37_and_their_kernel(name: str, kernel: tuple[int, int]) -> None:
    pod = a_pod(securityContext={"sysctls": [{"name": name, "value": "1"}]})

    def reason(release: str, minor: int) -> str:
        facts = MachineFacts(node_name="n1", kernel=(4, minor), release=release)
        return admit(pod, "Pending", a_view(facts=facts), taken_by(())).reason

    assert reason("1.37", kernel[1]) == ""
    assert reason("1.37", kernel[1] - 1) == reason("1.36", kernel[1]) == "SysctlForbidden"


def test_apparmor_is_asked_for_pending_pods_only() -> None:
    pod = a_pod(container={"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}})
    assert verdict(pod, phase="Running") == Verdict()


def test_the_number_of_pods_counts_before_all_else() -> None:
    others = [a_pod(str(i)) for i in range(3)]
    given = verdict(a_pod(requests={"cpu": "9"}), *others)
    assert (given.reason, given.message) == ("OutOfpods", NO_ROOM + "pods, requested: 1, used: 3, capacity: 3")


def test_host_ports_collide_by_protocol_port_and_address() -> None:
    def on(ip: str, protocol: str = "TCP", uid: str = "u1") -> dict[str, Any]:
        ports = [{"containerPort": 80, "hostPort": 8080, "hostIP": ip, "protocol": protocol}]
        return a_pod(uid, container={"ports": ports})

    assert verdict(on("192.0.2.1"), on("192.0.2.2", uid="u2")) == Verdict()
    assert verdict(on("192.0.2.1", "UDP"), on("192.0.2.1", uid="u2")) == Verdict()
    assert verdict(on(""), on("192.0.2.2", uid="u2")).reason == "NodePorts"
    assert verdict(on("192.0.2.1"), on("192.0.2.1", uid="u2")).message == (
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    )


@pytest.mark.long
def test_host_ports_of_a_thousand_pods_cost_one_comparison_for_each_port_of_the_pod() -> None:
    class CountedAddress(str):
        comparisons = 0

        def __eq__(self, other: object) -> bool:
            CountedAddress.comparisons += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    def with_ports(uid: str, address: str) -> dict[str, Any]:
        ports = [
            {"containerPort": 80, "hostPort": number, "hostIP": CountedAddress(address)} for number in range(8000, 8010)
        ]
        return a_pod(uid, container={"ports": ports})

    taken = taken_by([with_ports(f"u{number}", f"10.0.{number // 256}.{number % 256}") for number in range(1000)])
    free, held = with_ports("u", "10.1.0.0"), with_ports("u", "10.0.3.1")
    CountedAddress.comparisons = 0
    assert [admit(pod, "Pending", a_view(), taken).reason for pod in (free, held)] == ["OutOfpods", "OutOfpods"]
    assert CountedAddress.comparisons < 200
    roomy = a_view(allocatable={"pods": "2000"})
    assert [admit(pod, "Pending", roomy, taken).reason for pod in (free, held)] == ["", "NodePorts"]
    everywhere = with_ports("u", "0.0.0.0")
    assert admit(everywhere, "Pending", roomy, taken).reason == "NodePorts"
    assert admit(held, "Pending", roomy, taken_by([held])).reason == ""


def test_only_no_execute_taints_count_and_not_for_static_pods() -> None:
    taint = {"key": "k", "value": "v", "effect": "NoExecute"}
    assert verdict(a_pod(), taints=(taint,)).message == (
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    )
    assert verdict(a_pod(), taints=({**taint, "effect": "NoSchedule"},)) == Verdict()
    assert verdict(a_pod(source="file"), taints=(taint,)) == Verdict()
    assert verdict(a_pod(tolerations=[{"key": "k", "operator": "Exists"}]), taints=(taint,)) == Verdict()
    assert verdict(a_pod(tolerations=[{"key": "k", "value": "w"}]), taints=(taint,)).reason == "TaintToleration"


class TestPressure:
    def test_memory_pressure_refuses_best_effort_pods_alone(self) -> None:
        under: dict[str, Any] = {"pressures": ("MemoryPressure",)}
        given = verdict(a_pod(), **under)
        assert (given.reason, given.message) == ("Evicted", "The node had condition: [MemoryPressure]. ")
        assert verdict(a_pod(requests={"memory": "1Mi"}), **under) == Verdict()
        tolerant = [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]
        assert verdict(a_pod(tolerations=tolerant), **under) == Verdict()

    def test_any_other_pressure_refuses_all_but_critical_pods(self) -> None:
        under: dict[str, Any] = {"pressures": ("MemoryPressure", "DiskPressure")}
        assert verdict(a_pod(requests={"memory": "1Mi"}), **under).message == (
            "The node had condition: [MemoryPressure DiskPressure]. "
        )
        assert verdict(a_pod(source="file"), **under) == Verdict()


class TestPreemption:
    def test_the_least_important_and_smallest_pods_that_do_must_go(self) -> None:
        both = {"cpu": "1", "memory": "1Mi"}
        guaranteed = a_pod("guaranteed", container={"resources": {"requests": both, "limits": both}})
        burstable = a_pod("burstable", {"cpu": "1"})
        given = verdict(a_pod(requests={"cpu": "1"}, priority=2_000_000_000), guaranteed, burstable)
        assert given == Verdict(victims=("burstable",), lacking="cpu")

    def test_best_effort_pods_go_when_places_are_lacking(self) -> None:
        others = [a_pod("a", {"cpu": "10m"}), a_pod("b"), a_pod("c", {"cpu": "10m"})]
        assert verdict(a_pod(priority=2_000_000_000), *others).victims == ("b",)

    def test_critical_pods_never_go(self) -> None:
        vital = a_pod("vital", {"cpu": "2"}, source="file")
        given = verdict(a_pod(requests={"cpu": "100m"}, priority=2_000_000_000), vital)
        assert given.reason == "UnexpectedAdmissionError"
        assert given.message == (
            "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of "
            "pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 100), ]"
        )

    def test_no_pod_is_preempted_for_one_that_does_not_fit_for_another_reason_too(self) -> None:
        given = verdict(a_pod(requests={"cpu": "2"}, source="file", nodeName="other"), a_pod("o", {"cpu": "1"}))
        assert (given.reason, given.victims) == ("NodeName", ())

    def test_an_ordinary_pod_preempts_none(self) -> None:
        assert verdict(a_pod(requests={"cpu": "2"}), a_pod("o", {"cpu": "1"})).victims == ()


def test_the_view_of_an_unknown_node_is_what_would_be_registered() -> None:
    taint = {"key": "k", "effect": "NoExecute"}
    facts = MachineFacts(node_name="n1", labels={"a": "b"}, taints=(taint,))
    view = node_view(None, facts, pressures=(), supplemental_groups_policy=False)
    assert (view.labels, view.taints) == ({"a": "b"}, (taint,))
    odd = {"metadata": {"labels": None}, "spec": {"taints": None}}
    assert node_view(odd, facts, pressures=(), supplemental_groups_policy=False).labels == {}


@pytest.mark.parametrize("field", ["containers", "initContainers", "ephemeralContainers"])
def test_a_pod_of_more_containers_than_a_status_is_made_for_is_refused(field: str) -> None:
    pod = a_pod()
    pod["spec"][field] = [{"name": f"c{n}", "image": "i:1"} for n in range(500 - (field != "containers"))]
    assert verdict(pod).reason == ""
    pod["spec"][field].append({"name": "more", "image": "i:1"})
    assert verdict(pod) == Verdict(
        reason="PodFeatureUnsupported",
        message="Pod requires node features that are not available: 501 containers in one pod, at most 500 run here",
    )


def test_a_pod_of_very_many_volumes_is_refused() -> None:
    pod = a_pod(volumes=[{"name": f"v{n}", "emptyDir": {}} for n in range(1_000)])
    assert verdict(pod).reason == ""
    pod["spec"]["volumes"].append({"name": "more", "emptyDir": {}})
    assert "1001 volumes in one pod, at most 1000 run here" in verdict(pod).message


def test_a_pod_that_names_very_many_secrets_is_refused() -> None:
    sources = [{"secret": {"name": f"s{n}"}} for n in range(2_000)]
    pod = a_pod(volumes=[{"name": "v", "projected": {"sources": [*sources, *sources]}}])
    assert verdict(pod).reason == ""
    sources.append({"configMap": {"name": "s0"}})
    pod["spec"]["volumes"] = [{"name": "v", "projected": {"sources": sources}}]
    assert "2001 Secrets and ConfigMaps in one pod, at most 2000 run here" in verdict(pod).message


def test_extended_resources_are_those_of_the_node_and_its_own_are_those_of_the_machine() -> None:
    status = {"allocatable": {"example.com/dongle": "2", "cpu": "64", "kubernetes.io/batch": "1", "odd": {"a": 1}}}
    view = node_view({"status": status}, FACTS, pressures=(), supplemental_groups_policy=False)
    other = a_pod("o", {"example.com/dongle": "1"})
    assert admit(a_pod("u", {"example.com/dongle": "1"}), "", view, taken_by([other])).reason == ""
    refused = admit(a_pod("u", {"example.com/dongle": "2"}), "", view, taken_by([other]))
    assert (refused.reason, refused.message) == (
        "OutOfexample.com/dongle",
        "Node didn't have enough resource: example.com/dongle, requested: 2, used: 1, capacity: 2",
    )
    assert admit(a_pod("u", {"example.com/other": "9"}), "", view, taken_by([])).reason == ""
    assert admit(a_pod("u", {"cpu": "3"}), "", view, taken_by([])).reason == "OutOfcpu"


def test_a_pod_with_its_devices_fits_whatever_the_node_shows_of_them() -> None:
    gpu, dongle = "example.com/gpu", "example.com/dongle"
    status = {"allocatable": {gpu: "0", dongle: "1"}}
    view = node_view({"status": status}, FACTS, pressures=(), supplemental_groups_policy=False)
    gpus = ContainerDevices(resource=gpu, ids=frozenset({"g0", "g1"}))
    placement = PodPlacement(containers={"c": ContainerPlacement(devices=(gpus,))})
    other = taken_by([a_pod("o", {gpu: "2"})])
    pod = a_pod("u", {gpu: "2", dongle: "1"})
    admitted = admit(pod, "", view, other, placement=placement)
    assert (admitted.reason, admitted.placement) == ("", placement)
    assert admit(pod, "", view, other).reason == f"OutOf{gpu}"
    many = admit(a_pod("u", {gpu: "2", dongle: "2"}), "", view, other, placement=placement)
    assert many.message == NO_ROOM + f"{dongle}, requested: 2, used: 0, capacity: 1"


@pytest.mark.parametrize("resource", ["hugepages-1Gi", "kubernetes.io/batch"])
def test_of_a_native_resource_that_the_node_does_not_list_it_has_none(resource: str) -> None:
    given = verdict(a_pod(requests={resource: "4"}))
    assert given.reason == f"OutOf{resource}"
    assert given.message == f"Node didn't have enough resource: {resource}, requested: 4, used: 0, capacity: 0"


def test_a_change_of_the_nodes_allocatable_counts_for_the_next_pod() -> None:
    play = Play(source="api", facts=FACTS)
    reasons = []
    for number, dongles in enumerate(("1", "0", "2")):
        play.handle(NodeChanged(node={"status": {"allocatable": {"example.com/dongle": dongles}}}))
        play.want(a_pod(f"u{number}", {"example.com/dongle": "1"}, nodeName="n1"))
        reasons.append(play.core.tracked[f"u{number}"].saved.rejected)
    assert reasons == ["", "OutOfexample.com/dongle", ""]
