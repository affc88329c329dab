"""A Kubernetes Event to be recorded: stream `events/<service>`, disposable by contract."""

from dataclasses import dataclass

KEPT = 200  # events on the stream of each writer


@dataclass(frozen=True, kw_only=True)
class KubeEvent:
    """Key: a number that grows within the writer's incarnation; a writer keeps the newest `KEPT`."""

    type: str  # Normal | Warning
    reason: str
    message: str
    kind: str = "Pod"  # involvedObject
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""
    resource_version: str = ""  # of the involved object, where known
    annotations: tuple[tuple[str, str], ...] = ()  # of the Event itself
    time: str = ""  # RFC3339 with microseconds, wall clock of the writer
