"""Which namespace a sysctl belongs to, whatever separators its name has (pods.md 3.4)."""

import pytest

from shared.model.sysctls import SysctlNamespace, namespace_of, normalised


@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("net.core.somaxconn", SysctlNamespace.NET),
        ("net/ipv4/conf/eth0.1/forwarding", SysctlNamespace.NET),
        ("kernel.sem", SysctlNamespace.IPC),
        ("kernel/shm_rmid_forced", SysctlNamespace.IPC),
        ("fs.mqueue.msg_max", SysctlNamespace.IPC),
        ("kernel.domainname", SysctlNamespace.UTS),
        ("user.max_user_namespaces", SysctlNamespace.USER),
        ("kernel.shmother", None),
        ("kernel.hostname", None),  # runtimes set it from the pod's hostname
        ("kernel.panic", None),
        ("network.a", None),
        ("net", None),
        ("", None),
    ],
)
def test_the_namespace_of_a_sysctl(name: str, space: SysctlNamespace | None) -> None:
    assert namespace_of(normalised(name)) is space
