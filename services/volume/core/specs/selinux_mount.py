"""Decides the SELinux label with which a PersistentVolume is mounted, so that the runtime need not relabel its files
(volumes.md 12.5); pure."""

import re

from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.pod_fields import security_context
from services.volume.core.specs.volume_spec import Unprocessed
from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object
from shared.podspec.resources import main_containers

_LABEL = re.compile(r"[A-Za-z0-9_.:,-]+")
GATE = "SELinuxMount"  # without this gate, only ReadWriteOncePod volumes are mounted with a label


def mount_label(pod: Object, persistent: PersistentVolume) -> str | Unprocessed:
    """Return the label for a volume whose driver takes labels, "" = it is mounted without; Unprocessed where the
    containers of the pod contradict each other."""
    node = persistent.node
    if not node.file_label or persistent.block or not (persistent.one_pod or GATE in node.gates):
        return ""
    labels = {_label(options, node.file_label) for options in _process_options(pod, persistent.volume)}
    if len(labels) > 1:
        return Unprocessed(f"multiple SELinux labels found: {','.join(sorted(labels))}")
    if security_context(pod).get("seLinuxChangePolicy") == "Recursive":
        return ""
    return next(iter(labels), "")


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
