"""Which ids a pod with users of its own gets, how they survive a restart of the agent, and when they are free again."""

import json
import pwd
from pathlib import Path

import pytest

from services.podsync.adapters.pod.user_namespaces import UserNamespaces
from services.podsync.core.cri.config_errors import SandboxConfigError
from services.podsync.core.cri.user_namespaces import (
    IdRange,
    Mappings,
    UserNamespaceError,
    checked_range,
    default_range,
    free_block,
    recorded,
    restored,
)

BLOCK = 65536


def block(number: int, length: int = BLOCK) -> Mappings:
    ids = ((number * BLOCK, 0, length),)
    return Mappings(ids, ids)


@pytest.mark.parametrize(
    ("taken", "wanted"),
    [
        ([], 1),
        ([1], 2),
        ([2], 1),
        ([1, 2, 4], 3),
        ([3, 1], 2),
    ],
)
def test_the_first_free_block_is_taken_and_never_the_hosts_own(taken: list[int], wanted: int) -> None:
    assert free_block(map(block, taken), default_range(BLOCK), BLOCK) == block(wanted)


def test_a_block_touches_none_of_another_length() -> None:
    assert free_block([block(1, 3 * BLOCK)], default_range(BLOCK), BLOCK) == block(4)
    assert free_block([block(3)], default_range(2 * BLOCK), 2 * BLOCK) == block(4, 2 * BLOCK)
    assert default_range(2 * BLOCK) == IdRange(2 * BLOCK, 2**32 - 2 * BLOCK)


def test_a_full_range_has_no_block_left() -> None:
    with pytest.raises(UserNamespaceError, match="could not find an empty slot to allocate a user namespace"):
        free_block([block(2), block(3)], IdRange(2 * BLOCK, 2 * BLOCK), BLOCK)


def test_the_record_is_the_kubelets() -> None:
    entry = [{"hostId": 131072, "containerId": 0, "length": 65536}]
    assert recorded(block(2)) == {"uidMappings": entry, "gidMappings": entry}
    assert restored(recorded(block(2))) == block(2)


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"uidMappings": [], "gidMappings": []},
        {"uidMappings": [{"hostId": 65536, "containerId": 0, "length": 65536}], "gidMappings": None},
        {"uidMappings": [{"hostId": 65536, "containerId": 0, "length": 65536}],
         "gidMappings": [{"hostId": 131072, "containerId": 0, "length": 65536}]},
        *({kind: [{"hostId": 65536, "containerId": 0, "length": 65536, **wrong}] for kind in ("uidMappings",
                                                                                              "gidMappings")}
          for wrong in ({"hostId": 0}, {"hostId": 5}, {"hostId": "65536"}, {"hostId": True}, {"containerId": 1},
                        {"length": 0}, {"length": 7}, {"length": None}, {"hostId": 2**32 - 65536, "length": 131072})),
    ],
)  # fmt: skip
def test_a_record_that_maps_nothing_sensible_is_of_no_use(record: object) -> None:
    with pytest.raises(UserNamespaceError):
        restored(record)


IDS = "0: kubelet 65536 7208960\n"


def test_the_range_of_user_kubelet() -> None:
    assert checked_range(IDS, IDS, ids_per_pod=BLOCK, max_pods=110) == IdRange(65536, 7208960)


@pytest.mark.parametrize(
    ("uids", "gids", "what"),
    [
        ("", IDS, "/etc/subuid: user kubelet has 0 ranges"),
        (IDS + IDS, IDS, "has 2 ranges: give it exactly one"),
        (IDS, "0: kubelet 131072 7208960\n", "differ in /etc/subuid and /etc/subgid"),
        ("nonsense", "nonsense", "cannot understand 'nonsense'"),
        ("0: kubelet 65537 7208960",) * 2 + ("both must be multiples of 65536",),
        ("0: kubelet 65536 7208961",) * 2 + ("both must be multiples of 65536",),
        ("0: kubelet 0 7208960",) * 2 + ("must begin at 65536 or later",),
        ("0: kubelet 65536 65536",) * 2 + ("7208960 are needed for maxPods \\(110\\)",),
    ],
)
def test_a_range_of_no_use_is_refused_with_its_remedy(uids: str, gids: str, what: str) -> None:
    with pytest.raises(UserNamespaceError, match=what):
        checked_range(uids, gids, ids_per_pod=BLOCK, max_pods=110)


def pods(root: Path, *uids: str) -> None:
    for uid in uids:
        (root / "pods" / uid).mkdir(parents=True, exist_ok=True)


def test_the_record_is_on_disk_before_the_ids_are_returned(tmp_path: Path) -> None:
    pods(tmp_path, "a")
    given = UserNamespaces(tmp_path).allocate("a")
    record = tmp_path / "pods" / "a" / "userns"
    assert restored(json.loads(record.read_bytes())) == given
    assert record.stat().st_mode & 0o777 == 0o600


def test_a_pod_keeps_its_ids_over_a_restart_of_the_agent_and_no_other_pod_gets_them(tmp_path: Path) -> None:
    pods(tmp_path, "a", "b", "c")
    before = UserNamespaces(tmp_path)
    given = {uid: before.allocate(uid) for uid in ("a", "b")}
    after = UserNamespaces(tmp_path)
    assert {uid: after.allocate(uid) for uid in ("b", "a")} == given
    assert after.find("a") == given["a"]
    assert after.allocate("c") == block(3)


def test_ids_are_free_once_the_pod_has_ended_or_its_directory_is_gone(tmp_path: Path) -> None:
    pods(tmp_path, "a", "b", "c", "d")
    namespaces = UserNamespaces(tmp_path)
    for uid in ("a", "b"):
        namespaces.allocate(uid)
    namespaces.release("a")
    assert (namespaces.find("a"), (tmp_path / "pods" / "a" / "userns").exists()) == (None, False)
    assert namespaces.allocate("c") == block(1)
    (tmp_path / "pods" / "b" / "userns").unlink()
    (tmp_path / "pods" / "b").rmdir()
    assert namespaces.allocate("d") == block(2)
    namespaces.release("unknown")


def test_a_record_of_no_use_stops_its_own_pod_alone(tmp_path: Path) -> None:
    pods(tmp_path, "a", "b")
    record = tmp_path / "pods" / "a" / "userns"
    record.write_text("{}")
    namespaces = UserNamespaces(tmp_path)
    with pytest.raises(SandboxConfigError, match=r"pods/a/userns is of no use: .*; remove it once nothing of the pod"):
        namespaces.allocate("a")
    assert namespaces.allocate("b") == block(1)
    record.unlink()
    assert namespaces.allocate("a") == block(2)


def test_ids_that_cannot_be_written_down_are_not_given(tmp_path: Path) -> None:
    namespaces = UserNamespaces(tmp_path)
    with pytest.raises(SandboxConfigError, match=r"cannot write .*/pods/a/userns: No such file or directory"):
        namespaces.allocate("a")
    assert namespaces.find("a") is None


def test_user_kubelets_range_is_used_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "getsubids"
    tool.write_text("#!/bin/sh\necho '0: kubelet 655360 7208960'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(pwd, "getpwnam", lambda name: name)
    pods(tmp_path, "a")
    assert UserNamespaces(tmp_path).allocate("a") == block(10)
    tool.write_text("#!/bin/sh\necho 'no such user' >&2; exit 1\n")
    pods(tmp_path, "b")
    with pytest.raises(SandboxConfigError, match="getsubids kubelet: no such user; give user kubelet a range"):
        UserNamespaces(tmp_path).allocate("b")
