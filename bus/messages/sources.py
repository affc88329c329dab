"""Messages of which sources is the owner."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DesiredPod:
    """Stream `pods.desired`, key: pod UID. The stream is complete once every configured source has reported."""

    uid: str
    source: str  # file | http | api
    pod: dict[str, Any]  # the raw Pod, defaulted, with kubernetes.io/config.* annotations
