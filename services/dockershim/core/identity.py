"""Names and labels of Docker containers that are pod sandboxes and containers of pods, as dockershim had them.

Docker keeps what CRI wants back: the metadata in the name, labels as labels, annotations as labels with a prefix.
A container whose name or labels do not follow this is someone else's, and is not shown.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

TYPE = "io.kubernetes.docker.type"
SANDBOX, CONTAINER = "podsandbox", "container"  # values of TYPE
SANDBOX_ID = "io.kubernetes.sandbox.id"
LOG_PATH = "io.kubernetes.container.logpath"
IMAGE = "io.bulkhead.image"  # the reference by which a container was asked for; Docker keeps only what it resolved to
GIVEN = "io.bulkhead.labels"  # the names of CRI's labels and annotations, a line each; Docker adds those of the image
_ANNOTATION = "annotation."
_OWN = (TYPE, SANDBOX_ID, LOG_PATH, IMAGE)
_PREFIX, _POD = "k8s", "POD"
_PARTS = 6


class Identity(Struct, frozen=True):
    """Which sandbox or container of which pod a Docker container is."""

    container: str  # name of the container in its pod; "" = the sandbox
    name: str
    namespace: str
    uid: str
    attempt: int

    @property
    def reserved_name(self) -> str:
        """Return the name that containerd's refusal of a second one quotes."""
        words = [self.container] if self.container else []
        return "_".join((*words, self.name, self.namespace, self.uid, str(self.attempt)))


def name_of(identity: Identity) -> str:
    """Return the name of the Docker container."""
    container = identity.container or _POD
    return "_".join((_PREFIX, container, identity.name, identity.namespace, identity.uid, str(identity.attempt)))


def parse_name(name: str) -> Identity | None:
    """Return whose Docker container this is by its name, with or without Docker's slash; None = not of a pod."""
    words = name.removeprefix("/").split("_")
    if len(words) != _PARTS or words[0] != _PREFIX or not (words[5].isascii() and words[5].isdecimal()):
        return None
    return Identity("" if words[1] == _POD else words[1], words[2], words[3], words[4], int(words[5]))


def labels_of(kind: str, config: Any, own: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a Docker container for a PodSandboxConfig or ContainerConfig."""
    given = {**config.labels, **{_ANNOTATION + name: value for name, value in config.annotations.items()}}
    return {**given, GIVEN: "\n".join(given), TYPE: kind, **own}


def split_labels(labels: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and the annotations that CRI gave a Docker container with these labels. Where they are not
    named, as by the kubelet's dockershim, those of the image count as well."""
    kept: dict[str, str] = {}
    annotations: dict[str, str] = {}
    given = set(labels[GIVEN].split("\n") if GIVEN in labels else labels.keys() - set(_OWN))
    for name, value in labels.items():
        if name not in given:
            continue
        if name.startswith(_ANNOTATION):
            annotations[name.removeprefix(_ANNOTATION)] = value
        else:
            kept[name] = value
    return kept, annotations
