"""Defines the expansion that a claim requests of this node, and the ways it can fail (volumes.md 17); pure."""

import errno
from enum import StrEnum

from msgspec import Struct


class ExpansionFailure(StrEnum):
    """Why an expansion failed. UNSUPPORTED: the driver expands no volumes on nodes; IN_USE: this one cannot be expanded
    on this node while it is in use; INFEASIBLE: it can never have this size; FINAL: the call had no effect."""

    UNSUPPORTED = "unsupported"
    IN_USE = "in use"
    INFEASIBLE = "infeasible"
    FINAL = "final"


class ExpansionError(OSError):
    """An expansion failed; `kind` None = it may have had an effect."""

    def __init__(self, kind: ExpansionFailure | None, text: str) -> None:
        super().__init__(errno.EIO, text)
        self.kind = kind


def failure_of_code(code: str, *, final: bool) -> ExpansionFailure | None:
    """Return the failure that a gRPC code of NodeExpandVolume means, None = it may have had an effect. `final`: a call
    that fails with the code has no effect."""
    if code == "FailedPrecondition":
        return ExpansionFailure.IN_USE
    if code in ("InvalidArgument", "OutOfRange", "NotFound"):
        return ExpansionFailure.INFEASIBLE
    return ExpansionFailure.FINAL if final else None


class Expansion(Struct, frozen=True, kw_only=True):
    """An expansion that a claim requests.

    `size`, `before`: bytes that the volume is to have, and has on this node; `quantity`: the text of `size`;
    `recovery`: the claim's status takes part in the recovery protocol; `status`: its allocatedResourceStatuses.storage;
    `updated`: its capacity is the new one already; `superseded`: the claim requests another size by now;
    `conditions`: the types of its conditions that an expansion ends.
    """

    namespace: str
    claim: str
    uid: str
    version: str
    node: str
    size: int
    before: int
    quantity: str
    recovery: bool = False
    status: str = ""
    updated: bool = False
    superseded: bool = False
    conditions: tuple[str, ...] = ()
