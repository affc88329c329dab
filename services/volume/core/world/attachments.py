"""Decides which attachable volumes this node uses, and which of them may be mounted: the protocol with the
attach-detach controller (volumes.md 4); pure.

A volume is mounted only after a write of the Node's status named it in volumesInUse, and after the Node, as that write
returned it or newer, names it in volumesAttached. It leaves volumesInUse only once nothing of it is mounted: while a
restarted process does not know all that is on disk, it adds names to those that the Node has, and removes none.

When the Node goes back to an older version, etcd was restored from a backup. A report with a newer version than the
Node has now then proves nothing any more; its volume counts as reported again once the restored Node names it in
volumesInUse, which status writes again.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object


@dataclass
class Attachments:
    """The attachable volumes of this node. `token`: names this process in generations; `by_controller` False: the node
    should attach volumes itself, which no type of volume here supports."""

    token: str
    by_controller: bool = True
    in_use: frozenset[str] | None = None  # unique names; None = not known yet what this node uses
    # The volumesInUse of earlier processes, which may be on disk and not found yet; None = the Node was not read yet.
    _earlier: frozenset[str] | None = None
    _reported_earlier: frozenset[str] = frozenset()
    _number: int = 0
    _since: dict[str, int] = field(default_factory=dict)  # unique name -> the first list of volumesInUse that has it
    _reported: int = 0  # the newest generation that is in the API server
    _seen: dict[str, str] = field(default_factory=dict)  # unique name -> version of the Node when it was reported
    _lost: set[str] = field(default_factory=set)  # unique names whose report was lost when etcd was restored
    _attached: dict[str, str] = field(default_factory=dict)  # unique name -> devicePath
    _version: str = ""  # of the Node that names the attached volumes

    @property
    def generation(self) -> str:
        """Return the generation that the present `in_use` is published with."""
        return f"{self.token}.{self._number}"

    def use(self, unique_names: Collection[str], *, complete: bool = True) -> bool:
        """Set what this node uses now, and return whether that has changed. `complete` False: the node may use more,
        and the names that the Node has are kept; nothing is set before the Node is read."""
        now = frozenset(unique_names)
        if complete:
            self._earlier = frozenset()
        elif self._earlier is None:
            return False
        now |= self._earlier
        if now == self.in_use:
            return False
        self._number += 1
        self._since = {name: self._since.get(name, self._number) for name in now}
        self._seen = {name: version for name, version in self._seen.items() if name in now}
        self._lost &= now
        self.in_use = now
        return True

    def reported(self, generation: str, volumes: Collection[str], version: str) -> None:
        """Note that a write of this generation returned the Node with these volumesInUse and this resourceVersion."""
        token, _, number = generation.rpartition(".")
        if token != self.token:
            self._reported_earlier = frozenset(volumes)
        if token != self.token or not number.isdecimal() or int(number) < self._reported:
            return
        self._reported = int(number)
        for name in volumes:
            if name not in self._since or self._since[name] > self._reported:
                continue
            if _is_older(version, self._seen.setdefault(name, version)):
                self._seen[name] = version
                self._lost.discard(name)

    def on_node(self, node: Object) -> None:
        """Note the Node as the API server has it."""
        status = dictionary(node.get("status"))
        attached = dictionaries(status.get("volumesAttached"))
        self._attached = {text(volume.get("name")): text(volume.get("devicePath")) for volume in attached}
        before, self._version = self._version, text(dictionary(node.get("metadata")).get("resourceVersion"))
        in_use = status.get("volumesInUse")
        named = frozenset(map(text, in_use) if isinstance(in_use, list) else ())
        if self._earlier is None:
            self._earlier = self._reported_earlier.union(named - {""})
        if _is_older(self._version, before):
            self._lost |= {name for name, version in self._seen.items() if _is_older(self._version, version)}
        for name in self._lost & named:
            self._seen[name] = self._version
            self._lost.discard(name)

    def may_mount(self, unique_name: str) -> bool:
        """Return whether an attachable volume is reported in use and attached."""
        reported_at = self._seen.get(unique_name)
        if reported_at is None or unique_name in self._lost or unique_name not in self._attached:
            return False
        return not _is_older(self._version, reported_at)

    def device_path(self, unique_name: str) -> str:
        """Return the device that the attach-detach controller reports for an attached volume, "" = none."""
        return self._attached.get(unique_name, "")


def _is_older(version: str, than: str) -> bool:
    """Return whether a resourceVersion is older than another; those that are no numbers cannot be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
