"""Defines a resource claim as this node has it: which pods use it, and what its drivers have done; pure."""

from collections.abc import Mapping, Set
from enum import StrEnum

from msgspec import Struct, field

from bus.messages.resource_claims import ClaimDevice
from services.volume.core.resource_claims.driver_checks import Device
from shared.model.frozen_copy import replace

ClaimKey = tuple[str, str]  # namespace and name


class PartState(StrEnum):
    """What a driver has done for a claim. CALLED: it was called, and the outcome is not known or failed; it must be
    called to prepare, and also to unprepare."""

    NEW = "new"
    CALLED = "called"
    PREPARED = "prepared"


class Part(Struct, frozen=True, kw_only=True):
    """Has the part of one driver. `devices`: those that it named when it prepared them last; `specified`: since then
    the machine has had a specification of each of their CDI devices."""

    state: PartState = PartState.NEW
    devices: tuple[Device, ...] = ()
    specified: bool = False

    @property
    def cdi_devices(self) -> frozenset[str]:
        """Return the names of the CDI devices."""
        return frozenset(name for device in self.devices for name in device.cdi_devices)

    def compared(self, devices: Set[str]) -> "Part":
        """Return the part, given of which CDI devices the machine has specifications. Where they were there once and
        are lost, it must be prepared again. A driver may have the runtime read other directories: what was never found
        cannot be lost."""
        specified = self.cdi_devices <= devices
        if self.state is not PartState.PREPARED or not self.cdi_devices or specified == self.specified:
            return self
        return replace(self, specified=True) if specified else self.unsettled()

    def unsettled(self) -> "Part":
        """Return the part as one that must be prepared again."""
        return replace(self, state=PartState.CALLED, specified=False) if self.state is PartState.PREPARED else self


class Use(Struct, frozen=True, kw_only=True):
    """Has the use of a claim by a pod. `names`: of the claim within the pod, empty = not known, because another kubelet
    has prepared it; `containers`: container -> requests, of extended resources."""

    names: tuple[str, ...] = ()
    containers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Claim(Struct, frozen=True, kw_only=True):
    """Has a claim. `pods`: its uses by pod UID, `parts`: by driver."""

    uid: str
    name: str
    namespace: str
    pods: Mapping[str, Use] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)

    @property
    def key(self) -> ClaimKey:
        """Return namespace and name."""
        return self.namespace, self.name

    @property
    def is_prepared(self) -> bool:
        """Return whether all its drivers have prepared it."""
        return all(part.state is PartState.PREPARED for part in self.parts.values())

    @property
    def devices(self) -> tuple[ClaimDevice, ...]:
        """Return the devices of all drivers, as messages have them."""
        return tuple(
            ClaimDevice(
                driver=driver,
                pool=device.pool,
                device=device.device,
                share_id=device.share_id,
                requests=device.requests,
                cdi_devices=device.cdi_devices,
            )
            for driver, part in sorted(self.parts.items())
            for device in part.devices
        )

    def names(self, pod_uid: str) -> tuple[str, ...]:
        """Return the names of the claim within a pod that uses it, never none: one that stands for names that are not
        known begins with a slash, as no name does."""
        return self.pods[pod_uid].names or (f"/{self.name}",)

    def used_by(self, pod_uid: str, name: str, containers: Mapping[str, tuple[str, ...]]) -> "Claim":
        """Return the claim with a further use by a pod, which has it under this name."""
        before = self.pods.get(pod_uid, Use())
        names = tuple(dict.fromkeys((*before.names, name)))
        use = Use(names=names, containers={**before.containers, **containers})
        return replace(self, pods={**self.pods, pod_uid: use})

    def without(self, pod_uid: str) -> "Claim":
        """Return the claim without a user."""
        return replace(self, pods={uid: use for uid, use in self.pods.items() if uid != pod_uid})

    def with_part(self, driver: str, part: Part) -> "Claim":
        """Return the claim with another part of a driver."""
        return replace(self, parts={**self.parts, driver: part})

    def compared(self, devices: Set[str]) -> "Claim":
        """Return the claim, given of which CDI devices the machine has specifications, as `Part.compared` does."""
        parts = {driver: part.compared(devices) for driver, part in self.parts.items()}
        return self if parts == self.parts else replace(self, parts=parts)

    def unsettled(self) -> "Claim":
        """Return the claim as it is after a boot of the machine, which ends what the drivers have prepared."""
        return replace(self, parts={driver: part.unsettled() for driver, part in self.parts.items()})
