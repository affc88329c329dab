"""Decides which block of host ids a pod with a user namespace gets (pods.md 6.7), the format of its record, and the
values in CRI messages. Reads no file; the blocks in use are an argument.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from services.podsync.core.cri.message import message
from shared.cri.interface import Message
from shared.model.objects import Object

BLOCK = 65536  # ids; first id and length of every block are multiples of it
END = 1 << 32  # the first number that is no id: ids have 32 bits
_SUBIDS = re.compile(r"\d+:\s+\S+\s+(\d+)\s+(\d+)\s*\Z")


class UserNamespaceError(ValueError):
    """No block of ids can be allocated; the text has what, where and the remedy."""


class IdRange(Struct, frozen=True):
    """Has a range of host ids from `first` on."""

    first: int
    length: int

    @property
    def end(self) -> int:
        """The first id behind the range."""
        return self.first + self.length


class Mappings(Struct, frozen=True):
    """Maps ids of the host to ids in the container: (host id, container id, length) each."""

    uids: tuple[tuple[int, int, int], ...]
    gids: tuple[tuple[int, int, int], ...]


def needs_user_namespace(pod: Object) -> bool:
    """Return whether the pod is to have a user namespace of its own."""
    return (pod.get("spec") or {}).get("hostUsers") is False


def default_range(ids_per_pod: int) -> IdRange:
    """Return the range for a host that configures none: all but the first block, which is the host's own."""
    return IdRange(ids_per_pod, END - ids_per_pod)


def checked_range(uids: str, gids: str, *, ids_per_pod: int, max_pods: int) -> IdRange:
    """Parse and check the range that `getsubids kubelet` and `getsubids -g kubelet` print. Raises
    UserNamespaceError."""
    of_uids, of_gids = _subids(uids, "/etc/subuid"), _subids(gids, "/etc/subgid")
    if of_uids != of_gids:
        raise UserNamespaceError("the ids of user kubelet differ in /etc/subuid and /etc/subgid: make them the same")
    where = f"/etc/subuid: user kubelet has {of_uids.length} ids from {of_uids.first} on"
    if of_uids.first % ids_per_pod or of_uids.length % ids_per_pod:
        raise UserNamespaceError(f"{where}: both must be multiples of {ids_per_pod} (userNamespaces.idsPerPod)")
    if of_uids.first < ids_per_pod:
        raise UserNamespaceError(f"{where}: they must begin at {ids_per_pod} or later, the first ids are the host's")
    if of_uids.length < max_pods * ids_per_pod:
        needed = max_pods * ids_per_pod
        raise UserNamespaceError(
            f"{where}: {needed} are needed for maxPods ({max_pods}), give it more or lower maxPods"
        )
    return of_uids


def _subids(text: str, file: str) -> IdRange:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) != 1:
        raise UserNamespaceError(f"{file}: user kubelet has {len(lines)} ranges: give it exactly one")
    match = _SUBIDS.match(lines[0])
    if match is None:
        raise UserNamespaceError(f"getsubids: cannot understand {lines[0]!r} for user kubelet in {file}")
    return IdRange(int(match[1]), int(match[2]))


def free_block(taken: Iterable[Mappings], within: IdRange, length: int) -> Mappings:
    """Return the first block of this length that overlaps none in use. Raises UserNamespaceError where there is
    none."""
    used = sorted((host, host + count) for other in taken for host, _, count in {*other.uids, *other.gids})
    first = within.first
    for start, end in used:
        if first + length <= start:
            break
        while first < end:
            first += length
    if first + length > within.end:
        raise UserNamespaceError("could not find an empty slot to allocate a user namespace")
    mapping = ((first, 0, length),)
    return Mappings(mapping, mapping)


def recorded(mappings: Mappings) -> dict[str, Any]:
    """Return the record as the kubelet writes it: `uidMappings` and `gidMappings`, each a list of
    `{hostId, containerId, length}`."""
    return {
        f"{kind}Mappings": [{"hostId": h, "containerId": c, "length": n} for h, c, n in ids]
        for kind, ids in (("uid", mappings.uids), ("gid", mappings.gids))
    }


def restored(record: object) -> Mappings:
    """Return the mappings of a record. Raises UserNamespaceError where it is none."""
    if not isinstance(record, dict):
        raise UserNamespaceError("it is no JSON object")
    uids, gids = (_restored(record, kind) for kind in ("uidMappings", "gidMappings"))
    if uids != gids:
        raise UserNamespaceError("uidMappings and gidMappings differ")
    return Mappings(uids, gids)


def _restored(record: Mapping[str, Any], kind: str) -> tuple[tuple[int, int, int], ...]:
    entries = record.get(kind)
    if not isinstance(entries, list) or len(entries) != 1 or not isinstance(entries[0], dict):
        raise UserNamespaceError(f"{kind} must have exactly one entry")
    values = [entries[0].get(field) for field in ("hostId", "containerId", "length")]
    numbers = [number for number in values if type(number) is int and 0 <= number < END]
    if len(numbers) != len(values):
        raise UserNamespaceError(f"{kind}: hostId, containerId and length must be numbers below 2^32")
    host, inside, length = numbers
    if inside != 0 or length == 0 or host % BLOCK or length % BLOCK or host == 0 or host + length > END:
        raise UserNamespaceError(f"{kind}: it does not map complete blocks of {BLOCK} ids outside the host's own")
    return ((host, inside, length),)


def userns_options(mappings: Mappings | None) -> Message:
    """Return the CRI UserNamespace: the host's, or one with these ids (mode POD is the zero value)."""
    if mappings is None:
        return {"mode": "NODE"}
    return {"uids": id_mappings(mappings.uids), "gids": id_mappings(mappings.gids)}


def id_mappings(ids: Iterable[tuple[int, int, int]]) -> list[Message]:
    """Return the ids as CRI IDMappings."""
    return [message(host_id=host, container_id=inside, length=length) for host, inside, length in ids]
