"""pods.md 6.1: what of a pod shows in its sandbox."""

from tests.unit.podsync.cri.golden.case import (
    CONTAINER,
    HOSTS,
    NAMESPACES,
    POD_LABELS,
    SECURITY,
    Case,
    another,
    named,
    without_message_file,
)

SPACES = f"{SECURITY}:namespace_options"
HOST_DNS = {
    "dns_config:servers": ["192.0.2.53"],
    "dns_config:searches": ["host.example"],
    "dns_config:options": ["timeout:1"],
}
SELINUX = {"user": "u", "role": "r", "type": "t", "level": "s0:c1"}
BURSTABLE = {"linux:cgroup_parent": "/kubepods/burstable/podU"}


METADATA = (
    Case(
        name="a sandbox made again has the next attempt", given={"sandbox_attempt": 3}, sandbox={"metadata:attempt": 3}
    ),
    Case(
        name="a static pod goes by its own UID everywhere",
        metadata={"uid": "3f2a-1"},
        sandbox={
            "metadata:uid": "3f2a-1",
            "log_directory": "/var/log/pods/ns1_web_3f2a-1",
            "labels:io.kubernetes.pod.uid": "3f2a-1",
            "linux:cgroup_parent": "/kubepods/besteffort/pod3f2a-1",
        },
        message={"labels:io.kubernetes.pod.uid": "3f2a-1"},
    ),
    Case(
        name="labels of the pod cannot pretend to be another pod",
        metadata={"labels": {"io.kubernetes.pod.name": "other", "tier": "front"}},
        sandbox={"labels": {**POD_LABELS, "tier": "front"}},
    ),
    Case(name="a pod without labels", metadata={"labels": {}}, sandbox={"labels": POD_LABELS}),
    Case(
        name="annotations are passed on as they are",
        metadata={"annotations": {"kubernetes.io/config.seen": "2026-01-01T00:00:00Z", "x/y": ""}},
        sandbox={"annotations": {"kubernetes.io/config.seen": "2026-01-01T00:00:00Z", "x/y": ""}},
    ),
    Case(
        name="logs go to podLogsDir",
        node={"pod_logs_dir": "/logs"},
        sandbox={"log_directory": "/logs/ns1_web_U"},
    ),
)

NAMESPACE_CASES = (
    Case(
        name="on the host's network: no host name, the node's resolv.conf although ClusterFirst",
        spec={"hostNetwork": True},
        sandbox={"hostname": None, **HOST_DNS, f"{SPACES}:network": "NODE"},
        message={f"{SPACES}:network": "NODE"},
    ),
    Case(
        name="the host's processes",
        spec={"hostPID": True},
        sandbox={f"{SPACES}:pid": "NODE"},
        message={f"{SPACES}:pid": "NODE"},
    ),
    Case(
        name="the host's IPC",
        spec={"hostIPC": True},
        sandbox={f"{SPACES}:ipc": "NODE"},
        message={f"{SPACES}:ipc": "NODE"},
    ),
    Case(
        name="processes shared among the containers",
        spec={"shareProcessNamespace": True},
        sandbox={f"{SPACES}:pid": None},
        message={f"{SPACES}:pid": None},
    ),
    Case(name="processes expressly not shared are hidden", spec={"shareProcessNamespace": False}),
    Case(
        name="the host's processes win over sharing",
        spec={"hostPID": True, "shareProcessNamespace": True},
        sandbox={f"{SPACES}:pid": "NODE"},
        message={f"{SPACES}:pid": "NODE"},
    ),
    Case(
        name="a pod without any securityContext names no namespaces",
        spec={"securityContext": None},
        sandbox={SPACES: None},
        message={SPACES: None},
    ),
)

CGROUP_PARENTS = (
    Case(
        name="without cgroupsPerQOS there is no cgroup of the pod",
        node={"cgroups_per_qos": False},
        sandbox={"linux:cgroup_parent": None},
    ),
    Case(
        name="systemd: slices, and no dash within a part",
        metadata={"uid": "1a-2b"},
        node={"cgroup_driver": "systemd"},
        sandbox={
            "linux:cgroup_parent": ("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1a_2b.slice"),
            "metadata:uid": "1a-2b",
            "log_directory": "/var/log/pods/ns1_web_1a-2b",
            "labels:io.kubernetes.pod.uid": "1a-2b",
        },
        message={"labels:io.kubernetes.pod.uid": "1a-2b"},
    ),
    Case(
        name="below a cgroup root",
        node={"cgroup_root": "/a/b"},
        sandbox={"linux:cgroup_parent": "/a/b/kubepods/besteffort/podU"},
    ),
    Case(
        name="below a cgroup root, systemd",
        node={"cgroup_root": "/a", "cgroup_driver": "systemd"},
        sandbox={
            "linux:cgroup_parent": "/a.slice/a-kubepods.slice/a-kubepods-besteffort.slice/"
            "a-kubepods-besteffort-podU.slice"
        },
    ),
)

DEFAULT_SYSCTLS = {
    "net.core.somaxconn": "1",
    "net.ipv4.ip_forward": "1",
    "kernel.msgmax": "2",
    "fs.mqueue.msg_max": "3",
    "kernel.domainname": "d",
    "user.max_user_namespaces": "4",
}
SYSCTLS = (
    Case(
        name="sysctls by name",
        spec={
            "securityContext": {
                "sysctls": [
                    {"name": "kernel.shm_rmid_forced", "value": "1"},
                    {"name": "net.core.somaxconn", "value": ""},
                ]
            }
        },
        sandbox={"linux:sysctls": {"kernel.shm_rmid_forced": "1", "net.core.somaxconn": ""}},
    ),
    Case(
        name="slashes in a sysctl become dots, and dots within a part slashes",
        spec={
            "securityContext": {
                "sysctls": [
                    {"name": "net/ipv4/tcp_syncookies", "value": "0"},
                    {"name": "net/ipv4/conf/eth0.1/arp_filter", "value": "1"},
                    {"name": "kernel.a/b", "value": "1"},
                ]
            }
        },
        sandbox={
            "linux:sysctls": {
                "net.ipv4.tcp_syncookies": "0",
                "net.ipv4.conf.eth0/1.arp_filter": "1",
                "kernel.a/b": "1",
            }
        },
    ),
    Case(
        name="the node's default sysctls, below those of the pod, name by name",
        node={"default_sysctls": DEFAULT_SYSCTLS},
        spec={"securityContext": {"sysctls": [{"name": "net/core/somaxconn", "value": "9"}]}},
        sandbox={
            "linux:sysctls": {
                "net.core.somaxconn": "9",
                "net.ipv4.ip_forward": "1",
                "kernel.msgmax": "2",
                "fs.mqueue.msg_max": "3",
                "kernel.domainname": "d",
            }
        },
    ),
)

SECURITY_CASES = (
    Case(
        name="a privileged container makes the sandbox privileged",
        container={"securityContext": {"privileged": True}},
        sandbox={f"{SECURITY}:privileged": True},
        message={f"{SECURITY}:privileged": True},
    ),
    Case(
        name="so does a privileged init container, and nothing of the others",
        spec={"initContainers": [another("setup", securityContext={"privileged": True})]},
        sandbox={f"{SECURITY}:privileged": True},
    ),
    Case(
        name="so does a privileged ephemeral container",
        spec={"ephemeralContainers": [another("debug", securityContext={"privileged": True})]},
        sandbox={f"{SECURITY}:privileged": True},
    ),
    Case(
        name="user, group and SELinux of the pod are the sandbox's and the containers'",
        spec={"securityContext": {"runAsUser": 1000, "runAsGroup": 0, "seLinuxOptions": SELINUX}},
        sandbox={
            f"{SECURITY}:run_as_user": {"value": 1000},
            f"{SECURITY}:run_as_group": {},
            f"{SECURITY}:selinux_options": SELINUX,
        },
        message={
            f"{SECURITY}:run_as_user": {"value": 1000},
            f"{SECURITY}:run_as_group": {},
            f"{SECURITY}:selinux_options": SELINUX,
        },
    ),
    Case(
        name="user and SELinux of a container are not the sandbox's",
        container={"securityContext": {"runAsUser": 5, "runAsGroup": 6, "seLinuxOptions": {"level": "s0"}}},
        message={
            f"{SECURITY}:run_as_user": {"value": 5},
            f"{SECURITY}:run_as_group": {"value": 6},
            f"{SECURITY}:selinux_options": {"level": "s0"},
        },
    ),
    Case(
        name="whatever seccomp the pod has, the sandbox has the runtime's own",
        spec={"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    ),
    Case(
        name="fsGroup comes first among the groups",
        spec={"securityContext": {"fsGroup": 2000, "supplementalGroups": [7, 8]}},
        sandbox={f"{SECURITY}:supplemental_groups": [2000, 7, 8]},
        message={f"{SECURITY}:supplemental_groups": [2000, 7, 8]},
    ),
    Case(
        name="fsGroup 0 is a group",
        spec={"securityContext": {"fsGroup": 0}},
        sandbox={f"{SECURITY}:supplemental_groups": [0]},
        message={f"{SECURITY}:supplemental_groups": [0]},
    ),
    Case(
        name="groups of volumes come before the others in the sandbox and after them in containers",
        spec={"securityContext": {"fsGroup": 2000, "supplementalGroups": [7, 8]}},
        given={"volume_groups": (8, 9)},
        sandbox={f"{SECURITY}:supplemental_groups": [2000, 9, 7, 8]},
        message={f"{SECURITY}:supplemental_groups": [2000, 7, 8, 9]},
    ),
    Case(
        name="groups of the image alone do not count under Strict",
        spec={"securityContext": {"supplementalGroupsPolicy": "Strict"}},
        sandbox={f"{SECURITY}:supplemental_groups_policy": "Strict"},
        message={f"{SECURITY}:supplemental_groups_policy": "Strict"},
    ),
    Case(name="Merge is the default", spec={"securityContext": {"supplementalGroupsPolicy": "Merge"}}),
)

OVERHEAD = (
    Case(
        name="overhead is a field beside the pod's own resources",
        spec={"overhead": {"cpu": "250m", "memory": "64Mi"}, "runtimeClassName": "kata"},
        sandbox={
            "linux:overhead": {
                "cpu_period": 100000,
                "cpu_quota": 25000,
                "cpu_shares": 256,
                "memory_limit_in_bytes": 67108864,
            }
        },
    ),
    Case(
        name="overhead of memory alone",
        spec={"overhead": {"memory": "64Mi"}},
        sandbox={"linux:overhead": {"cpu_period": 100000, "cpu_shares": 2, "memory_limit_in_bytes": 67108864}},
    ),
)

TOTALS = (
    Case(
        name="containers are added up",
        spec={
            "containers": [
                {**CONTAINER, "resources": {"requests": {"cpu": "100m"}}},
                another("d", resources={"requests": {"cpu": "250m"}}),
            ]
        },
        sandbox={**BURSTABLE, "linux:resources:cpu_shares": 358},
        message={"linux:resources:cpu_shares": 102, "linux:resources:oom_score_adj": 999},
    ),
    Case(
        name="an init container that needs more than all of them counts instead",
        container={"resources": {"requests": {"cpu": "100m"}}},
        spec={"initContainers": [another("setup", resources={"requests": {"cpu": "1"}})]},
        sandbox={**BURSTABLE, "linux:resources:cpu_shares": 1024},
        message={"linux:resources:cpu_shares": 102, "linux:resources:oom_score_adj": 999},
    ),
    Case(
        name="a sidecar runs beside them",
        container={"resources": {"requests": {"cpu": "100m"}}},
        spec={"initContainers": [another("side", restartPolicy="Always", resources={"requests": {"cpu": "1"}})]},
        sandbox={**BURSTABLE, "linux:resources:cpu_shares": 1126},
        message={"linux:resources:cpu_shares": 102, "linux:resources:oom_score_adj": 999},
    ),
    Case(
        name="an init container runs with the sidecars before it, not with those after it",
        spec={
            "initContainers": [
                another("side", restartPolicy="Always", resources={"requests": {"cpu": "500m"}}),
                another("setup", resources={"requests": {"cpu": "2"}}),
                another("late", restartPolicy="Always", resources={"requests": {"cpu": "250m"}}),
            ]
        },
        sandbox={**BURSTABLE, "linux:resources:cpu_shares": 2560},
        message={"linux:resources:oom_score_adj": 999},
    ),
)

KINDS = (
    Case(
        name="an init container is described as any other",
        spec={"initContainers": [another("setup")]},
        of="setup",
        message={
            **named("setup", "fe1b579e"),
            "mounts": [
                HOSTS,
                {"container_path": "/dev/termination-log", "host_path": "/pods/U/containers/setup/0a1b2c3d"},
            ],
        },
    ),
    Case(
        name="so is a sidecar",
        spec={"initContainers": [another("side", restartPolicy="Always", terminationMessagePath="")]},
        of="side",
        message={
            **without_message_file("side", "c320aba"),
        },
    ),
    Case(
        name="an ephemeral container without a target hides from the others",
        spec={"ephemeralContainers": [another("debug", terminationMessagePath="", stdin=True, tty=True)]},
        of="debug",
        message={
            **without_message_file("debug", "77a2b699"),
            "stdin": True,
            "tty": True,
        },
    ),
    Case(
        name="an ephemeral container sees the processes of its target",
        spec={"ephemeralContainers": [another("debug", targetContainerName="c", terminationMessagePath="")]},
        of="debug",
        given={"target_id": "id-of-c"},
        message={
            **without_message_file("debug", "77a2b699"),
            SPACES: {**NAMESPACES, "pid": "TARGET", "target_id": "id-of-c"},
        },
    ),
    Case(
        name="where all share their processes a target changes nothing",
        spec={
            "shareProcessNamespace": True,
            "ephemeralContainers": [another("debug", targetContainerName="c", terminationMessagePath="")],
        },
        of="debug",
        given={"target_id": "id-of-c"},
        sandbox={f"{SPACES}:pid": None},
        message={
            **without_message_file("debug", "77a2b699"),
            f"{SPACES}:pid": None,
        },
    ),
)

CASES = (
    *METADATA, *NAMESPACE_CASES, *CGROUP_PARENTS, *SYSCTLS, *SECURITY_CASES, *OVERHEAD, *TOTALS, *KINDS,
)  # fmt: skip
