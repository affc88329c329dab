"""Has what a pod without a verdict needs of device plugins before it can get one. It is only in memory: a new process
decides again what is needed. Admission decides it, and `sync.before_verdict` the call or the wait that follows.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from services.podsync.core.placement.device_policy import DeviceIds, PreferenceQuestion
from services.podsync.core.pod.instructions import DevicesOfContainer
from shared.time.timestamps import rfc3339

PLUGIN_NOT_READY = "DevicePluginNotReady"  # reason of the event, and of the condition
MAX_SHOWN_NAMES = 8  # of resources, devices or containers, in one text


class AwaitedPlugin(Struct, frozen=True, kw_only=True):
    """Has a resource whose plugin is waited for. `since`: when its connection ended, seconds since the epoch; 0 =
    volume has not reported yet which resources have plugins."""

    resource: str
    since: float = 0.0


class DeviceNeed(Struct, frozen=True, kw_only=True):
    """Has one of these needs: plugins that must come back, an answer to a question, or prepared devices. `answers`:
    what plugins have answered before to questions of this pod."""

    awaited: tuple[AwaitedPlugin, ...] = ()
    until: float = 0.0  # steady seconds until which plugins are awaited
    question: PreferenceQuestion | None = None
    unprepared: tuple[DevicesOfContainer, ...] = ()
    answers: Mapping[PreferenceQuestion, DeviceIds] = field(default_factory=dict)


def describe_wait(awaited: Sequence[AwaitedPlugin]) -> str:
    """Return for which plugins a pod waits, as the end of a sentence that begins with "waits for"; "" = for none."""
    unknown = [each.resource for each in awaited if not each.since]
    away = [f"that of {each.resource}, not connected since {rfc3339(each.since)}" for each in awaited if each.since]
    texts = [f"device plugins: {shortened(away, '; ')}"] if away else []
    texts += [f"the list of device plugins, which may have {shortened(unknown)}"] if unknown else []
    return " and ".join(texts)


def shortened(names: Sequence[str], separator: str = ", ") -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else ""
    return separator.join(names[:MAX_SHOWN_NAMES]) + more
