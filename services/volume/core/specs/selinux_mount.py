"""Decides the SELinux label with which a PersistentVolume is mounted, so that the runtime need not relabel its files
(volumes.md 12.5); pure."""

import re

from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.pod_fields import security_context
from services.volume.core.specs.volume_spec import SELinuxUse, Unprocessed
from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object
from shared.podspec.resources import main_containers

_LABEL = re.compile(r"[A-Za-z0-9_.:,-]+")
GATE = "SELinuxMount"  # without this gate, only ReadWriteOncePod volumes are mounted with a label
_ACCESS_MODES = {"ReadWriteMany": "RWX", "ReadOnlyMany": "ROX", "ReadWriteOnce": "RWO", "ReadWriteOncePod": "RWOP"}


def selinux_use(pod: Object, persistent: PersistentVolume) -> SELinuxUse | None:
    """Return how the pod uses a volume whose driver takes labels; None = the host or the volume has none."""
    node = persistent.node
    if not node.file_label or persistent.block:
        return None
    options = _process_options(pod, persistent.volume)
    labels = {_label(each, node.file_label) for each in options}
    unlabelled = sum(bool(text(each.get("level"))) and not _label(each, node.file_label) for each in options)
    if len(labels) < 2 and security_context(pod).get("seLinuxChangePolicy") == "Recursive":
        labels.clear()
        unlabelled = 0
    mode = next((short for mode, short in _ACCESS_MODES.items() if mode in persistent.access_modes), "")
    return SELinuxUse(mode, tuple(sorted(labels)), persistent.one_pod or GATE in node.gates, unlabelled)


def mount_label(use: SELinuxUse | None) -> str | Unprocessed:
    """Return the label that the volume is mounted with, "" = it is mounted without; Unprocessed where the containers of
    the pod contradict each other."""
    if use is None or not use.enforced:
        return ""
    if len(use.labels) > 1:
        return Unprocessed(f"multiple SELinux labels found: {','.join(use.labels)}", selinux=use)
    return next(iter(use.labels), "")


def _process_options(pod: Object, volume: str) -> list[Object]:
    """Return the seLinuxOptions of each container that mounts the volume; those of a container replace those of the
    pod."""
    of_pod = security_context(pod).get("seLinuxOptions")
    ephemeral = dictionaries(dictionary(pod.get("spec")).get("ephemeralContainers"))
    found = []
    for container in [*main_containers(pod), *ephemeral]:
        own = dictionary(container.get("securityContext")).get("seLinuxOptions")
        options = of_pod if own is None else own
        mounts = dictionaries(container.get("volumeMounts"))
        if isinstance(options, dict) and any(mount.get("name") == volume for mount in mounts):
            found.append(options)
    return found


def _label(options: Object, default: str) -> str:
    """Return the label of files for processes with these options: their user and level, with role and type of
    `default`.

    Return "" without a level, because the runtime then chooses one that is not known here. Return "" also with a
    character that no label has: after a quote, the rest would be mount options that the pod chooses. The runtime
    refuses such a label.
    """
    level = text(options.get("level"))
    user, _, rest = default.partition(":")
    role, _, rest = rest.partition(":")
    kind = rest.partition(":")[0]
    label = f"{text(options.get('user')) or user}:{role}:{kind}:{level}"
    return label if level and _LABEL.fullmatch(label) else ""
