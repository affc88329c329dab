"""What Docker is asked for: each field of CRI's messages against the field of Docker Engine's API 1.41."""

from typing import Any

import pytest
from cri_api.v1 import api_pb2

from services.dockershim.core.create_requests import Host, container_body, sandbox_body
from services.dockershim.core.errors import CallError
from services.dockershim.core.identity import Identity, name_of, parse_name, split_labels

HOST = Host("pause:1")
POD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "default", "uid": "u-1", "attempt": 2},
    "hostname": "web",
    "log_directory": "/var/log/pods/web",
    "labels": {"a": "b"},
    "annotations": {"c": "d"},
    "linux": {"cgroup_parent": "/kubepods/podu-1", "sysctls": {"net.ipv4.ip_forward": "1"}},
}


def sandbox_of(**security: Any) -> dict[str, Any]:
    config = api_pb2.PodSandboxConfig(**{**POD, "linux": {**POD["linux"], "security_context": security}})
    return sandbox_body(config, HOST, "", "")


def container_of(profile: str = "", **fields: Any) -> dict[str, Any]:
    config = api_pb2.ContainerConfig(
        **{"metadata": {"name": "c", "attempt": 1}, "image": {"image": "busybox:1"}, **fields}
    )
    return container_body(config, api_pb2.PodSandboxConfig(**POD), "box", "sha256:1", HOST, profile)


def secured(profile: str = "", **security: Any) -> dict[str, Any]:
    host: dict[str, Any] = container_of(profile, linux={"security_context": security})["HostConfig"]
    return host


def test_a_sandbox_is_a_pause_process_with_labels_of_its_pod() -> None:
    body = sandbox_of()
    host = body["HostConfig"]
    assert (body["Image"], body["Hostname"]) == ("pause:1", "web")
    given = {"a": "b", "annotation.c": "d", "io.bulkhead.labels": "a\nannotation.c"}
    assert body["Labels"] == given | {"io.kubernetes.docker.type": "podsandbox"}
    assert split_labels(body["Labels"]) == ({"a": "b"}, {"c": "d"})
    assert (host["NetworkMode"], host["IpcMode"], host["PidMode"]) == ("none", "shareable", "")
    assert (host["CgroupParent"], host["Sysctls"]) == ("/kubepods/podu-1", {"net.ipv4.ip_forward": "1"})
    assert host["OomScoreAdj"] == -998


def test_the_pause_process_of_a_privileged_pod_has_no_privileges() -> None:
    assert sandbox_of(privileged=True)["HostConfig"]["Privileged"] is False
    assert secured(privileged=True)["Privileged"] is True


def test_the_slice_of_a_pod_is_named_without_its_path_as_dockers_driver_for_systemd_wants_it() -> None:
    path = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice"
    pod = api_pb2.PodSandboxConfig(**{**POD, "linux": {"cgroup_parent": path}})
    container = api_pb2.ContainerConfig(metadata=api_pb2.ContainerMetadata(name="c"))
    for body in (sandbox_body(pod, HOST, "", ""), container_body(container, pod, "box", "sha256:1", HOST, "")):
        assert body["HostConfig"]["CgroupParent"] == "kubepods-burstable-podu_1.slice"


def test_a_sandbox_with_the_namespaces_of_the_node_has_no_name_of_its_own() -> None:
    body = sandbox_of(namespace_options={"network": 2, "pid": 2, "ipc": 2})
    host = body["HostConfig"]
    assert (host["NetworkMode"], host["IpcMode"], host["PidMode"]) == ("host", "host", "host")
    assert "Hostname" not in body


def test_docker_itself_gives_a_sandbox_in_the_network_of_the_node_its_resolv_conf() -> None:
    dns = {"servers": ["10.96.0.10"], "searches": ["svc"], "options": ["ndots:5"]}
    security = {"namespace_options": {"network": 2}}
    pod = api_pb2.PodSandboxConfig(**{**POD, "linux": {"security_context": security}, "dns_config": dns})
    host = sandbox_body(pod, HOST, "", "")["HostConfig"]
    assert (host["Dns"], host["DnsSearch"], host["DnsOptions"]) == (["10.96.0.10"], ["svc"], ["ndots:5"])
    assert "Dns" not in sandbox_of(**security)["HostConfig"]


def test_a_container_shares_the_namespaces_of_its_sandbox() -> None:
    host = secured(namespace_options={"pid": 1})
    assert (host["NetworkMode"], host["IpcMode"], host["PidMode"]) == ("container:box", "container:box", "")
    assert secured(namespace_options={"pid": 0})["PidMode"] == "container:box"
    assert secured(namespace_options={"pid": 3, "target_id": "other"})["PidMode"] == "container:other"


def test_command_and_arguments_replace_those_of_the_image() -> None:
    assert "Entrypoint" not in (body := container_of()) and "Cmd" not in body
    body = container_of(args=["x"])
    assert "Entrypoint" not in body and body["Cmd"] == ["x"]
    body = container_of(command=["sh"])
    assert (body["Entrypoint"], body["Cmd"]) == (["sh"], [])
    body = container_of(command=["sh"], args=["-c", "true"], working_dir="/w", tty=True, stdin=True, stdin_once=True)
    assert (body["Entrypoint"], body["Cmd"], body["WorkingDir"]) == (["sh"], ["-c", "true"], "/w")
    assert (body["Tty"], body["OpenStdin"], body["StdinOnce"]) == (True, True, True)


def test_the_limits_and_the_swap_of_a_container() -> None:
    resources = {"cpu_period": 100_000, "cpu_quota": 50_000, "cpu_shares": 512, "memory_limit_in_bytes": 64 << 20}
    host = container_of(linux={"resources": {**resources, "oom_score_adj": 900, "cpuset_cpus": "0-1"}})["HostConfig"]
    assert (host["CpuPeriod"], host["CpuQuota"], host["CpuShares"], host["CpusetCpus"]) == (100_000, 50_000, 512, "0-1")
    assert (host["Memory"], host["MemorySwap"], host["OomScoreAdj"]) == (64 << 20, 64 << 20, 900)
    swap = container_of(linux={"resources": {**resources, "memory_swap_limit_in_bytes": 96 << 20}})["HostConfig"]
    assert swap["MemorySwap"] == 96 << 20


def test_mounts_keep_propagation_and_access_and_relabelled_ones_are_binds() -> None:
    mounts = [
        {"container_path": "/a:b", "host_path": "/h:1", "readonly": True, "propagation": 1},
        {"container_path": "/l", "host_path": "/h2", "selinux_relabel": True, "propagation": 2},
    ]
    host = container_of(mounts=mounts)["HostConfig"]
    (mount,) = host["Mounts"]
    assert (mount["Type"], mount["Source"], mount["Target"], mount["ReadOnly"]) == ("bind", "/h:1", "/a:b", True)
    assert mount["BindOptions"] == {"Propagation": "rslave"}
    assert host["Binds"] == ["/h2:/l:rw,Z,rshared"]


def test_security_without_a_profile_is_unconfined_as_the_kubelet_means_it() -> None:
    assert secured()["SecurityOpt"] == ["seccomp=unconfined"]
    assert secured(seccomp={"profile_type": 0})["SecurityOpt"] == []
    assert secured(seccomp={"profile_type": 1})["SecurityOpt"] == ["seccomp=unconfined"]
    assert secured("{}", seccomp={"profile_type": 2, "localhost_ref": "/p"})["SecurityOpt"] == ["seccomp={}"]
    assert secured(privileged=True)["SecurityOpt"] == []


def test_profiles_labels_and_privileges() -> None:
    host = secured(
        seccomp={"profile_type": 0},
        apparmor={"profile_type": 2, "localhost_ref": "k8s-web"},
        selinux_options={"type": "t", "level": "s0:c1"},
        no_new_privs=True,
        capabilities={"add_capabilities": ["NET_ADMIN", "CAP_SYS_TIME"], "drop_capabilities": ["ALL"]},
        supplemental_groups=[10, 20],
        readonly_rootfs=True,
        masked_paths=["/proc/kcore"],
        readonly_paths=["/proc/sys"],
    )
    assert host["SecurityOpt"] == ["apparmor=k8s-web", "label=type:t", "label=level:s0:c1", "no-new-privileges"]
    assert (host["CapAdd"], host["CapDrop"]) == (["NET_ADMIN", "SYS_TIME"], ["ALL"])
    assert (host["GroupAdd"], host["ReadonlyRootfs"]) == (["10", "20"], True)
    assert (host["MaskedPaths"], host["ReadonlyPaths"]) == (["/proc/kcore"], ["/proc/sys"])


@pytest.mark.parametrize(
    ("security", "user"),
    [
        ({}, None),
        ({"run_as_user": {"value": 0}}, "0"),
        ({"run_as_user": {"value": 5}, "run_as_group": {"value": 6}}, "5:6"),
        ({"run_as_username": "nobody"}, "nobody"),
    ],
)
def test_the_user_of_a_container(security: dict[str, Any], user: str | None) -> None:
    assert container_of(linux={"security_context": security}).get("User") == user


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"linux": {"security_context": {"run_as_group": {"value": 6}}}}, "runAsGroup"),
        ({"linux": {"security_context": {"capabilities": {"add_ambient_capabilities": ["KILL"]}}}}, "ambient"),
        ({"linux": {"security_context": {"supplemental_groups_policy": 1}}}, "Strict"),
        ({"linux": {"security_context": {"namespace_options": {"userns_options": {"mode": 0}}}}}, "hostUsers"),
        ({"linux": {"security_context": {"apparmor": {"profile_type": 2}}}}, "AppArmor"),
        ({"mounts": [{"container_path": "/a", "image": {"image": "x"}}]}, "image"),
        ({"mounts": [{"container_path": "/a", "host_path": "/b", "recursive_read_only": True}]}, "recursively"),
        ({"mounts": [{"container_path": "/a", "host_path": "/b:c", "selinux_relabel": True}]}, "colon"),
        ({"CDI_devices": [{"name": "vendor.com/gpu=0"}]}, "CDI"),
    ],
)
def test_what_docker_cannot_do_is_refused_and_never_left_out(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(CallError, match=word) as refusal:
        container_of(**fields)
    assert refusal.value.code == "InvalidArgument"


def test_a_name_says_whose_container_it_is() -> None:
    identity = Identity("c", "web", "default", "u-1", 3)
    assert name_of(identity) == "k8s_c_web_default_u-1_3"
    assert parse_name("/k8s_c_web_default_u-1_3") == identity
    assert parse_name("k8s_POD_web_default_u-1_0") == Identity("", "web", "default", "u-1", 0)
    for other in ("/mine", "/k8s_c_web_default_u-1", "/k8s_c_web_default_u-1_x", "/k8s_a_b_c_d_e_1", ""):
        assert parse_name(other) is None


def test_labels_of_the_image_are_none_of_the_container() -> None:
    """Docker gives a container the labels of its image beside its own."""
    of_image = {"maintainer": "m", "annotation.x": "y", "io.bulkhead.labels": "maintainer", "a": "of the image"}
    given = {"a": "b", "annotation.c": "d", "io.bulkhead.labels": "a\nannotation.c", "io.kubernetes.sandbox.id": "x"}
    assert split_labels(of_image | given) == ({"a": "b"}, {"c": "d"})


def test_a_container_of_the_kubelets_dockershim_keeps_its_labels() -> None:
    """It names none as given; without those of its pod, it would be a container of no pod."""
    given = {"io.kubernetes.pod.uid": "u-1", "annotation.io.kubernetes.container.hash": "h"}
    own = {"io.kubernetes.docker.type": "container", "io.kubernetes.sandbox.id": "x"}
    expected = ({"io.kubernetes.pod.uid": "u-1"}, {"io.kubernetes.container.hash": "h"})
    assert split_labels(given | own | {"io.kubernetes.container.logpath": "/l"}) == expected
