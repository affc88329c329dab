"""Whether iptables can masquerade follows from what the program says in a network namespace of its own."""

from pathlib import Path

import pytest

from shared.host import masquerading
from shared.host.masquerading import masquerading_failure


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory of programs, with an unshare that makes no namespace."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(masquerading, "_SBIN", "")
    program(tmp_path / "unshare", '[ "$1 $2" = "--net --" ] && shift 2 && exec "$@"')
    return tmp_path


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_an_iptables_that_takes_the_rule_can(programs: Path) -> None:
    program(programs / "iptables", 'case "$*" in *"--table nat"*MASQUERADE) exit 0;; esac; exit 2')
    assert masquerading_failure() == ""


def test_it_is_not_installed(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    assert masquerading_failure() == "iptables is not installed"


# As they are printed with kernels that have not these modules.
LEGACY = (
    "iptables v1.8.9 (legacy): can't initialize iptables table `nat': Table does not exist (do you need to insmod?)"
)
NFT = "iptables v1.8.9 (nf_tables):  TABLE_ADD failed (Operation not supported): table nat"
NO_TARGET = "iptables v1.8.9 (nf_tables):  RULE_APPEND failed (No such file or directory): rule in chain POSTROUTING"


@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        (f"{LEGACY}\nPerhaps iptables or your kernel needs to be upgraded.", 3, LEGACY),
        (f"modprobe: FATAL: Module ip_tables not found in directory /lib/modules/7.2\n{LEGACY}", 3, LEGACY),
        (NFT, 4, NFT),
        (f"Warning: Extension MASQUERADE revision 0 not supported, missing kernel module?\n{NO_TARGET}", 4, NO_TARGET),
        ("", 1, "exit code 1"),
    ],
)
def test_what_it_says_is_the_reason(programs: Path, said: str, code: int, reason: str) -> None:
    program(programs / "iptables", f"cat >&2 <<'END'\n{said}\nEND\nexit {code}")
    assert masquerading_failure() == f"iptables cannot masquerade: {reason}"


def test_nothing_is_said_where_it_is_not_known(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for passing in ("Another app is currently holding the xtables lock", "iptables: Memory allocation problem."):
        program(programs / "iptables", f"echo '{passing}' >&2; exit 4")
        assert masquerading_failure() == ""
    program(programs / "iptables", "exec sleep 60")
    with monkeypatch.context() as shorter:
        shorter.setattr(masquerading, "_MAX_SECONDS", 0.1)
        assert masquerading_failure() == ""
    program(programs / "unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1")
    assert masquerading_failure() == ""
