"""Has the messages about resource claims, of which volume is the owner."""

from enum import StrEnum

from msgspec import Struct, field


class ClaimState(StrEnum):
    """Says how far one resource claim of one pod is."""

    PENDING = "pending"
    PREPARED = "prepared"
    ERROR = "error"
    UNPREPARING = "unpreparing"


class ClaimDevice(Struct, frozen=True, kw_only=True):
    """Has one device of a resource claim, as its driver names it."""

    driver: str  # name of the driver
    pool: str  # name of the pool that the device is in
    device: str  # name of the device, unique within the pool
    share_id: str = ""  # of a device that several claims share; "" = it is not shared
    requests: tuple[str, ...] = ()  # requests of the claim that it serves; empty = all
    cdi_devices: tuple[str, ...] = ()  # names of CDI devices, such as `example.com/gpu=0`
    health: str = ""  # `Healthy`, `Unhealthy` or `Unknown`; "" = the driver has never reported health
    message: str = ""  # one line of the driver about the health


class PodClaim(Struct, frozen=True, kw_only=True):
    """Has one resource claim of one pod."""

    # Its name in the pod's `spec.resourceClaims`; "" = the claim of the pod's extended resources. Where another kubelet
    # has prepared the claim and the pod is not known yet, it is `/` and the name of the ResourceClaim.
    name: str
    claim: str  # name of the ResourceClaim; "" = it is not created yet
    state: ClaimState  # `pending`, `prepared`, `error` or `unpreparing`
    uid: str = ""  # of the ResourceClaim; "" = it was not read yet
    devices: tuple[ClaimDevice, ...] = ()  # by driver; only of a prepared claim
    # container -> requests of the claim whose devices it has: only of the claim of extended resources
    containers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    error: str = ""  # one line with the name of the driver where it is the cause: why it is not prepared or unprepared
    since: float = 0.0  # seconds since the epoch: since when there is an error; 0 = there is none


class PodClaims(Struct, frozen=True, kw_only=True):
    """Stream `claims.prepared`, key: pod UID. The resource claims of a pod that is to run, and those that are not
    unprepared yet of one that has ended. Deleted once there are none."""

    uid: str  # pod UID
    # the claims of its spec in their order, then that of its extended resources
    claims: tuple[PodClaim, ...]
    # the pod has ended, and its claims could not be unprepared for 5 minutes: nothing needs to wait for them any longer
    overdue: bool = False
