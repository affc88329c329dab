"""SELinux in enforcing mode, in a machine with Debian's policy: as it is, without types for containers, then with some
of those that the package container-selinux brings elsewhere, at last as a node of a cluster with a CSI driver that
takes labels. The tests are one plan, in this order."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.api_http import HttpApiServer
from tests.machine.csi_disk import CsiDisk
from tests.machine.machine import Machine
from tests.machine.network import MachineNetwork
from tests.machine.root import WITH_MORE, build_for_machines, cached_root
from tests.support.agents.world import busybox_pod
from tests.support.machines.installed_node import MANIFESTS

pytestmark = [pytest.mark.root, pytest.mark.night, pytest.mark.timeout(1500)]

_OPTIONS = ("selinux=1", "security=selinux", "enforcing=0")
_CONTEXTS = "/etc/selinux/default/contexts/files/file_contexts"
LOGS = "/var/log/bulkhead/pods"
BOOTSTRAP_LOG = "/var/log/bulkhead/bootstrap.log"
ARGS = "/etc/bulkhead/kubelet.args"
ROOT_DIR = "/var/lib/bulkhead/kubelet"
CONTAINERD_CONFIG = "/run/bulkhead/containerd/config.toml"
CONTAINERD_ROOT = "/var/lib/bulkhead/containerd"
SNAPSHOTS = f"{CONTAINERD_ROOT}/io.containerd.snapshotter.v1.overlayfs/snapshots"
SANDBOXES = f"{CONTAINERD_ROOT}/io.containerd.grpc.v1.cri/sandboxes"
# The agent and its containerd are in initrc_t, which may do everything. A container may do everything with files of its
# own label, and has no access to other files in /var/lib.
_FILE_TYPES = ("file_type", "non_security_file_type", "non_auth_file_type")
_CLASSES = ("dir", "file", "lnk_file", "chr_file", "fifo_file", "sock_file", "filesystem")
_POLICY = "\n".join((
    "(type container_t)",
    "(roletype system_r container_t)",
    "(typeattributeset domain (container_t))",
    "(typeattributeset mcs_constrained_type (container_t))",
    "(type container_file_t)",
    "(roletype object_r container_file_t)",
    *(f"(typeattributeset {name} (container_file_t))" for name in _FILE_TYPES),
    "(allow container_file_t self (filesystem (associate)))",
    "(allow initrc_t container_t (process (all)))",
    "(allow initrc_t container_t (process2 (all)))",
    "(allow initrc_t container_file_t (filesystem (all)))",
    *(f"(allow container_t container_file_t ({name} (all)))" for name in _CLASSES),
    *(f"(allow container_t self ({name} (all)))" for name in ("process", "dir", "file", "lnk_file", "fifo_file")),
    "(allow container_t initrc_t (fd (use)))",
    *(f"(allow container_t initrc_t ({name} (all)))" for name in ("fifo_file", "unix_stream_socket")),
    "(allow container_t initrc_t (process (sigchld)))",
    "(type container_ro_file_t)",
    "(roletype object_r container_ro_file_t)",
    *(f"(typeattributeset {name} (container_ro_file_t))" for name in _FILE_TYPES),
    "(allow container_ro_file_t container_file_t (filesystem (associate)))",
    "(allow container_t container_ro_file_t (dir (search getattr)))",
    "(allow container_t container_ro_file_t (file (read getattr open)))",
))  # fmt: skip
_WORK = "cat /proc/self/attr/current; echo; echo written > /data/file; cat /outside/file 2>&1; exec sleep 1000000"
_SHARE = "cat /proc/self/attr/current; echo; echo written >> /data/file; wc -l < /data/file; exec sleep 1000000"


@pytest.fixture(scope="module")
def network() -> Iterator[MachineNetwork]:
    with MachineNetwork(with_host=True) as network:
        yield network


@pytest.fixture(scope="module")
def machine(network: MachineNetwork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    directory = tmp_path_factory.mktemp("selinux")
    package = build_for_machines(directory / "release")
    root = cached_root("install", *WITH_MORE)
    with Machine(directory / "machine", network=network, root=root, options=_OPTIONS) as machine:
        package.rename(machine.shared / "bulkhead.deb")
        machine.must("setfiles", "-F", _CONTEXTS, "/")
        machine.reboot()  # now everything that is started has its label
        machine.must("setenforce", "1")
        machine.must("dpkg", "--install", "/host/bulkhead.deb")
        try:
            yield machine
        finally:
            print(machine.last_lines())


@pytest.fixture(scope="module")
def disk(machine: Machine, network: MachineNetwork) -> Iterator[CsiDisk]:
    with HttpApiServer(address=network.host_ip) as api:
        disk = CsiDisk(machine, api)
        disk.join(ROOT_DIR, ARGS)
        yield disk


def add_pod(machine: Machine, name: str, **spec: Any) -> None:
    """A pod that writes to a volume of its own and reads a file of the node."""
    machine.must("sh", "-c", "mkdir -p /srv/outside && echo outside > /srv/outside/file")
    pod = busybox_pod(name, "sh", "-c", _WORK, **spec)
    pod["spec"]["volumes"] = [
        {"name": "data", "emptyDir": {}}, {"name": "outside", "hostPath": {"path": "/srv/outside"}},
    ]  # fmt: skip
    pod["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "data", "mountPath": "/data"}, {"name": "outside", "mountPath": "/outside"},
    ]  # fmt: skip
    machine.write(f"{MANIFESTS}/{name}.json", json.dumps(pod))


def wait_for_log(machine: Machine, pod: str) -> tuple[str, list[str]]:
    """The UID of the pod and the two lines that its container has written, once it has. The machine has one processor,
    which a look at the agent would take from the pod."""
    logs = f"{LOGS}/default_{pod}_*/main/0.log"
    script = f'until [ "$(cat {logs} 2>/dev/null | wc -l)" = 2 ]; do sleep 1; done; echo {logs}; cat {logs}'
    try:
        path, *lines = machine.run("sh", "-c", script, seconds=2 * machine.within).stdout.splitlines()
    except AssertionError as error:
        denied = machine.call("sh", "-c", "dmesg | grep avc | tail -n 20").stdout
        story = machine.call("bulkhead", "explain", pod).stdout
        raise AssertionError(f"{error}\n{story}\n{denied}") from error
    uid = path.removeprefix(LOGS).split("/")[1].rpartition("_")[2]
    return uid, [line.split(" ", 3)[3].rstrip("\0") for line in lines]


def start(machine: Machine) -> None:
    machine.must("systemctl", "enable", "--now", "bulkhead")
    machine.must("bulkhead", "status", f"--wait-ready={machine.within:g}")


def stop(machine: Machine) -> None:
    """Stop the agent and its containerd, once no container runs."""
    machine.wait_until("! pgrep -x containerd-shim")
    machine.must("sh", "-c", "systemctl stop bulkhead; pkill -x containerd || true")
    machine.wait_until("! pgrep -x containerd")


def label_of(machine: Machine, path: str) -> str:
    return machine.must("stat", "--format=%C", path).strip()


def test_a_policy_without_types_for_containers_keeps_no_pod_from_running(machine: Machine) -> None:
    assert machine.must("getenforce") == "Enforcing\n"
    start(machine)
    machine.import_images()
    add_pod(machine, "plain")
    assert wait_for_log(machine, "plain-machine")[1] == ["system_u:system_r:initrc_t:s0", "outside"]
    warned = machine.must("grep", "-c", "the SELinux label system_u:object_r:container_file_t:s0 cannot be set",
                          BOOTSTRAP_LOG)  # fmt: skip
    assert warned == "3\n"  # as many directories of plugins
    machine.must("rm", f"{MANIFESTS}/plain.json")


def test_the_directories_of_plugins_get_the_label_of_container_files(machine: Machine) -> None:
    machine.write("/root/container.cil", _POLICY)
    machine.must("semodule", "--install", "/root/container.cil")
    stop(machine)
    start(machine)
    for name in ("plugins", "plugins_registry", "device-plugins"):
        assert label_of(machine, f"{ROOT_DIR}/{name}") == "system_u:object_r:container_file_t:s0"
    assert label_of(machine, f"{ROOT_DIR}/pods") == "system_u:object_r:var_lib_t:s0"


def test_images_of_before_the_types_keep_their_label_and_containers_get_none(machine: Machine) -> None:
    assert label_of(machine, SNAPSHOTS) == "system_u:object_r:var_lib_t:s0"
    machine.must("grep", f"{SNAPSHOTS}: its content was created without the SELinux label", BOOTSTRAP_LOG)
    machine.must("grep", "enable_selinux = false", CONTAINERD_CONFIG)


def test_a_container_is_confined_and_its_image_and_volume_have_its_label(machine: Machine) -> None:
    stop(machine)
    machine.must("rm", "--recursive", "--force", CONTAINERD_ROOT)
    start(machine)
    machine.import_images()
    add_pod(machine, "confined")
    uid, (own, refused) = wait_for_log(machine, "confined-machine")
    prefix, level = own[: len("system_u:system_r:container_t:s0:")], own[len("system_u:system_r:container_t:s0:") :]
    assert prefix == "system_u:system_r:container_t:s0:" and level.startswith("c"), own
    assert refused == "cat: can't open '/outside/file': Permission denied"
    directory = f"{ROOT_DIR}/pods/{uid}"
    volume = f"{directory}/volumes/kubernetes.io~empty-dir/data"
    for path in (volume, f"{volume}/file", f"{directory}/etc-hosts"):
        assert label_of(machine, path) == f"system_u:object_r:container_file_t:s0:{level}", path
    assert machine.must("cat", f"{volume}/file") == "written\n"
    assert label_of(machine, "/srv/outside/file").split(":")[2] == "var_t"  # a file of the node keeps its label
    of_image = machine.must("sh", "-c", f"stat --format=%C {SNAPSHOTS}/*/fs/bin/busybox").split()
    assert set(of_image) == {"system_u:object_r:container_file_t:s0"}
    assert label_of(machine, SANDBOXES) == "system_u:object_r:container_ro_file_t:s0"


def test_a_container_gets_the_level_that_its_pod_names(machine: Machine) -> None:
    add_pod(machine, "levelled", securityContext={"seLinuxOptions": {"level": "s0:c10,c20"}})
    uid, (own, _) = wait_for_log(machine, "levelled-machine")
    assert own == "system_u:system_r:container_t:s0:c10,c20"
    volume = f"{ROOT_DIR}/pods/{uid}/volumes/kubernetes.io~empty-dir/data"
    assert label_of(machine, f"{volume}/file") == "system_u:object_r:container_file_t:s0:c10,c20"


def published(uid: str) -> str:
    return f"{ROOT_DIR}/pods/{uid}/volumes/kubernetes.io~csi/disk/mount"


def test_a_volume_of_a_csi_driver_is_mounted_with_the_label_of_its_pod(machine: Machine, disk: CsiDisk) -> None:
    disk.run("first", _SHARE, seLinuxOptions={"level": "s0:c10,c20"})
    uid, lines = wait_for_log(machine, "first")
    assert lines == ["system_u:system_r:container_t:s0:c10,c20", "1"]
    assert label_of(machine, f"{published(uid)}/file") == "system_u:object_r:container_file_t:s0:c10,c20"
    for_node, for_pod = disk.mounts()
    assert 'context="system_u:object_r:container_file_t:s0:c10,c20"' in for_node and for_node == for_pod


def test_a_pod_with_another_level_gets_the_volume_when_it_is_unmounted(machine: Machine, disk: CsiDisk) -> None:
    before = disk.mounts()
    disk.run("second", _SHARE, seLinuxOptions={"level": "s0:c7"})
    label = "system_u:object_r:container_file_t:s0"
    why = f'conflicting SELinux labels of volume disk: "{label}:c10,c20" and "{label}:c7"'
    disk.wait_for_event("second", "FailedMount", why)
    assert disk.mounts() == before
    disk.delete("first")
    uid, lines = wait_for_log(machine, "second")
    assert lines == ["system_u:system_r:container_t:s0:c7", "2"]
    assert label_of(machine, f"{published(uid)}/file") == f"{label}:c7"
    assert all(f"context={label}:c7" in options for options in disk.mounts()) and len(disk.mounts()) == 2


def test_a_pod_that_wants_it_so_gets_the_volume_relabelled(machine: Machine, disk: CsiDisk) -> None:
    disk.delete("second")
    machine.wait_until("! grep -q kubernetes.io.csi/ /proc/mounts")
    assert disk.label_on_disk("file") == "system_u:object_r:unlabeled_t:s0"  # it had the labels of mounts alone
    disk.run("third", _SHARE, seLinuxOptions={"level": "s0:c3,c4"}, seLinuxChangePolicy="Recursive")
    uid, lines = wait_for_log(machine, "third")
    assert lines == ["system_u:system_r:container_t:s0:c3,c4", "3"]
    assert label_of(machine, f"{published(uid)}/file") == "system_u:object_r:container_file_t:s0:c3,c4"
    assert [("seclabel" in options, "context=" in options) for options in disk.mounts()] == [(True, False)] * 2
