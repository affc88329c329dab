"""Which namespace a sysctl belongs to, whatever separators its name has (pods.md 3.4)."""

import pytest

from shared.model.sysctls import SysctlNamespace, namespace_of, normalised


def test_the_namespace_of_a_sysctl(subtests: pytest.Subtests) -> None:
    for name, space in [
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
    ]:
        with subtests.test(name):
            assert namespace_of(normalised(name)) is space
