"""Defines the inputs of the reconciler (what was found at start, how an operation ended) and what follows from the
latter."""

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from bus.messages.event import KubeEvent
from bus.messages.usage import FilesystemUsage
from bus.messages.volume import VolumeHealth
from services.volume.core.files.payload import FailureKind
from services.volume.core.specs.expansion import ExpansionFailure

WAIT_FOR_ATTACH = "WaitForAttach"  # the kubelet's name of the step that attaches a device


class FoundVolume(Struct, frozen=True):
    """A volume as its plugin found it at start.

    `name`: of its directory; `key`: its key in the core, "" = its name; `plugin`: the plugin's name; `host_path`:
    absolute, "" = not known; `complete`: its content has been complete once, so it is used as it is until it is set up
    again; `on_disk` False: only subpaths of it were found; `unique_name`: of the device that it is mounted on;
    `device_unknown`: its record, which names the device, cannot be read; `attachable`: its device is or may be
    attachable.
    """

    name: str
    plugin: str = ""
    host_path: str = ""
    complete: bool = False
    on_disk: bool = True
    subpaths: bool = False
    unique_name: str = ""
    key: str = ""
    device_unknown: bool = False
    attachable: bool = False


class FoundDevice(Struct, frozen=True):
    """A device of which its plugin found something at start, mounted or half-way. `attachable`: it is or may be
    attachable; `label`: the SELinux label of its mount, "" = none."""

    plugin: str
    volume_name: str
    attachable: bool = False
    label: str = ""


class VolumeReading(Struct, frozen=True):
    """How full a volume is, None = that is not known, and its condition. `abnormal`: whether the driver reports damage,
    None = it reports nothing; `condition`: the driver's text about that; `health`: adverse conditions by newer drivers,
    None = nothing is known anew."""

    usage: FilesystemUsage | None
    abnormal: bool | None = None
    condition: str = ""
    health: tuple[VolumeHealth, ...] | None = None


class Performed(Struct, frozen=True):
    """The result of an operation: the path of what was mounted, "" = none; whether old files of the volume are kept,
    which a RemoveOldFiles is to remove; and whether its files can have SELinux labels of their own. `rest`: the last
    part of a set-up, which calls no driver, takes as long as there are files and raises OSError; None = none."""

    host_path: str = ""
    has_old_files: bool = False
    takes_labels: bool = True
    rest: Callable[[], None] | None = None


class PluginEvent(Struct, frozen=True):
    """An event of a pod, or of the PersistentVolume of this name, that a plugin reports while it works."""

    reason: str
    message: str
    uid: str = ""  # of the pod
    persistent_volume: str = ""
    is_warning: bool = True


class DriverCall(Struct, frozen=True):
    """One call of a CSI driver that has ended. `method`: as `/csi.v1.Node/NodePublishVolume`; `code`: Go's name of the
    gRPC code, as `OK`; `seconds`: how long it took."""

    driver: str
    method: str
    code: str
    seconds: float


class Outcome(Struct, frozen=True):
    """How an operation ended; `error` is the kubelet's inner text, "" = success. `versions`, `refresh_at` and
    `old_files_at` (monotonic) of a volume of files: the objects used, when it falls due by age, and when its old files
    are to be removed. `under_way`: it failed because its call does not return; the call goes on. `expansion`: why an
    expansion failed, None = it may have had an effect."""

    host_path: str = ""
    takes_labels: bool = True  # its files can have SELinux labels of their own
    error: str = ""
    kind: FailureKind = FailureKind.LASTING
    step: str = ""  # of a MountDevice that failed before there was a device; "" = that of the operation
    versions: Mapping[str, str] = field(default_factory=dict)
    refresh_at: float | None = None
    old_files_at: float | None = None
    under_way: bool = False
    expansion: ExpansionFailure | None = None


class FollowUp(Struct, frozen=True):
    """What follows from the end of an operation: the seconds until it may run again, the events to record, and whether
    its failure is not reported yet."""

    retry_in: float
    events: tuple[KubeEvent, ...] = ()
    quiet: bool = False
