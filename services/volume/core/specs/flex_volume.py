"""Decides what a FlexVolume driver is called with, and what its answer means (volumes.md 19); pure. No text has a value
of a Secret."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import ContentError, FoundObject, Problem, SetUpInputs
from services.volume.core.specs.pod_fields import changes_group_always, fs_group
from shared.model import objects
from shared.model.fields import dictionary, text
from shared.model.objects import Object

MOUNTS = "mounts"  # the directory of the devices of a driver, beside which no driver may have this name
MAX_ANSWER_BYTES = 64 << 10
MAX_OPTIONS_BYTES = (128 << 10) - 1  # of one argument of a program, in Linux
_MAX_MESSAGE_CHARACTERS = 1000
_PART = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")
_MISSING = FoundObject(problem=Problem("not requested"))


@dataclass(frozen=True)
class FlexVolume:
    """A volume of a FlexVolume driver. `driver`: `<vendor>/<driver>` or `<driver>`; `name`: of its directory;
    `filesystem`: of its device, "" = any; `options`: of its device, as the pod or the PersistentVolume has them, and of
    the agent; `pod_options`: those that a mount for the pod has as well, without those of the Secret; `fs_group`: a
    group ID; `always`: every file is given to the group at each mount; `attaches`: its driver attaches volumes to
    nodes, and has a device layer."""

    driver: str
    name: str
    filesystem: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    pod_options: tuple[tuple[str, str], ...] = ()
    secret: ObjectKey | None = None
    read_only: bool = False
    fs_group: int | None = None
    always: bool = True
    attaches: bool = False

    @property
    def volume_name(self) -> str:
        """Return the name of its device, "" = it has none. The kubelet, too, takes no other name from a driver."""
        return f"{self.driver}/{self.name}" if self.attaches else ""


class Answer(msgspec.Struct, frozen=True):
    """Has the answer of a driver to a call that succeeded; the capabilities are those of `init`, `device` is that of
    `waitforattach`."""

    device: str = ""
    attach: bool = True
    fs_group: bool = True
    selinux_relabel: bool = True
    supports_metrics: bool = False
    requires_fs_resize: bool = True


class DriverFailureError(OSError):
    """A driver reports that it failed. `unsupported`: it does not have the command."""

    def __init__(self, why: str, *, unsupported: bool = False) -> None:
        super().__init__(why)
        self.unsupported = unsupported


def why_invalid(driver: str) -> str:
    """Return why no driver has this name, which becomes part of paths; "" = it is valid."""
    vendor, slash, name = driver.rpartition("/")
    reserved = vendor == "kubernetes.io" or name == MOUNTS
    if not _PART.fullmatch(name) or (slash and not _PART.fullmatch(vendor)) or reserved:
        form = "<vendor>/<driver> or <driver>, of letters, digits, -, _ and ."
        return f"the driver {driver!a} of a flexVolume must be {form}"
    return ""


def flex_driver(source: Object) -> str:
    """Return the driver of an entry of spec.volumes, or of the spec of a PersistentVolume; "" = it has none, or one of
    that name cannot be."""
    driver = text(dictionary(source.get("flexVolume")).get("driver"))
    return "" if why_invalid(driver) else driver


def flex_volume(
    pod: Object, volume: str, source: Object, secret: ObjectKey | None, *, read_only: bool, attaches: bool
) -> FlexVolume:
    """Return the volume that a source describes. `volume`: its name in directories; options of the source win over
    those of the agent."""
    group, filesystem = fs_group(pod), text(source.get("fsType"))
    options = {
        "kubernetes.io/fsType": filesystem,
        "kubernetes.io/readwrite": "ro" if read_only else "rw",
        "kubernetes.io/pvOrVolumeName": volume,
        **{str(key): str(value) for key, value in dictionary(source.get("options")).items()},
    }
    pod_options = {
        "kubernetes.io/pod.name": objects.name(pod),
        "kubernetes.io/pod.namespace": objects.namespace(pod),
        "kubernetes.io/pod.uid": objects.uid(pod),
        "kubernetes.io/serviceAccount.name": text(dictionary(pod.get("spec")).get("serviceAccountName")),
        **({} if group is None else {"kubernetes.io/mounterArgs.FsGroup": str(group)}),
    }
    return FlexVolume(
        text(source.get("driver")),
        volume,
        filesystem,
        tuple(sorted(options.items())),
        tuple(sorted(pod_options.items())),
        secret,
        read_only,
        group,
        changes_group_always(pod),
        attaches,
    )


def secret_values(volume: FlexVolume, gathered: SetUpInputs) -> Mapping[str, str]:
    """Return the values of the volume's Secret, base64 as the API has them; {} = it names none. Raises ContentError."""
    key = volume.secret
    if key is None:
        return {}
    found = gathered.objects.get(key, _MISSING)
    failed = f"couldn't get secret {key.namespace}/{key.name} err:"
    if found.object is None:
        problem = found.problem or Problem("not found")
        raise ContentError([Problem(f"{failed} {problem.text}", problem.kind)])
    if found.object.get("type") != volume.driver:
        raise ContentError([Problem(f"{failed} cannot get secret of type {volume.driver}")])
    return {str(name): text(value) for name, value in dictionary(found.object.get("data")).items()}


def mount_options(volume: FlexVolume, secrets: Mapping[str, str]) -> str:
    """Return the options of `mount` as JSON. Raises OSError where they are too long for a program."""
    secret = {f"kubernetes.io/secret/{name}": value for name, value in secrets.items()}
    return _options({**dict(volume.pod_options), **secret, **dict(volume.options)})


def device_options(volume: FlexVolume) -> str:
    """Return the options of calls for the device as JSON. Raises OSError where they are too long for a program."""
    return _options(dict(volume.options))


def _options(options: Mapping[str, str]) -> str:
    found = json.dumps(options, sort_keys=True)
    if len(found) > MAX_OPTIONS_BYTES:
        raise OSError(
            f"options and Secret of the volume have {len(found)} bytes, and a FlexVolume driver takes at most"
            f" {MAX_OPTIONS_BYTES}"
        )
    return found


def read_answer(driver: str, command: str, code: int, output: bytes, secrets: Mapping[str, str]) -> Answer:
    """Return the answer of a driver that has ended with this exit status. Raises DriverFailureError for a failure, with
    the kubelet's text and the driver's message without the values of the Secret, and for output that is no answer:
    nothing of that is shown, because it may contain the arguments."""
    what = f"the FlexVolume driver {driver} was called to {command}, and ended with exit status {code}:"
    if len(output) > MAX_ANSWER_BYTES:
        raise DriverFailureError(f"{what} it printed more than {MAX_ANSWER_BYTES} bytes")
    try:
        found = msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DriverFailureError(f"{what} it printed {len(output)} bytes that are no JSON object")
    answer = {str(key).lower(): value for key, value in found.items()}
    status = text(answer.get("status"))
    if status == "Not supported":
        raise DriverFailureError(f"{command} command failed, status: Not supported", unsupported=True)
    if status != "Success":
        shown, message = (_without(secrets, text(answer.get(key))) for key in ("status", "message"))
        raise DriverFailureError(f"{command} command failed, status: {shown}, reason: {message}")
    if code != 0:
        raise DriverFailureError(f"{what} it printed the status Success")
    if not (device := text(answer.get("device"))).isprintable():
        raise DriverFailureError(f"{what} it printed a device with characters that are not printable")
    able = {str(key).lower(): value for key, value in dictionary(answer.get("capabilities")).items()}
    return Answer(
        device=device,
        attach=able.get("attach") is not False,
        fs_group=able.get("fsgroup") is not False,
        selinux_relabel=able.get("selinuxrelabel") is not False,
        supports_metrics=able.get("supportsmetrics") is True,
        requires_fs_resize=able.get("requiresfsresize") is not False,
    )


def _without(secrets: Mapping[str, str], message: str) -> str:
    """Return a driver's message on one line, without the values of the Secret."""
    values = set(secrets.values())
    for value in secrets.values():
        try:
            values.add(base64.b64decode(value, validate=True).decode())
        except (binascii.Error, ValueError):
            continue
    for value in sorted(filter(None, (value.strip() for value in values)), key=len, reverse=True):
        message = message.replace(value, "***")
    return " ".join(message.split())[:_MAX_MESSAGE_CHARACTERS]
