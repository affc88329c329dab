"""Decides which plugins are registered, given the sockets below `plugins_registry` and their plugins' answers; pure.

A socket is tried until its plugin is registered or refused for good; one that is replaced is registered again, and the
old registration stays until then. Times are seconds of one monotonic clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bus.messages.volume import RegisteredPlugin
from shared.time.backoff import Backoff

RETRIES = Backoff(initial=0.5, cap=122.0)
# Failures after which a socket counts as one without a plugin, about 4 minutes after the first attempt. A driver that
# runs as a pod leaves its socket behind at a reboot, and listens again once its pod has started.
MAX_FAILURES = 10
# What a socket is: device, inode, and when it was made (ns). Another one at the same path is another plugin process.
Identity = tuple[int, int, int]


@dataclass
class _Socket:
    identity: Identity
    failures: int = 0
    not_before: float = 0.0
    running: Identity | None = None  # the socket as it was when its attempt began
    settled: bool = False  # its plugin is registered, or refused for as long as the socket is this one
    plugin: RegisteredPlugin | None = None  # registered through this path, perhaps by the socket before
    order: int = 0  # grows with each registration: that of `plugin`


@dataclass
class PluginRegistry:
    """The sockets by absolute path, with their plugins. Call `set_sockets` after each look at the directory, then
    `due`, and one of `registered`, `refused` and `failed` for each attempt that was begun."""

    _sockets: dict[str, _Socket] = field(default_factory=dict)
    _looked: bool = False
    _registrations: int = 0

    def set_sockets(self, sockets: Mapping[str, Identity]) -> None:
        """Set the sockets that are there now. The plugins of those that are gone are deregistered."""
        self._looked = True
        for path in [path for path in self._sockets if path not in sockets]:
            del self._sockets[path]
        for path, identity in sockets.items():
            known = self._sockets.setdefault(path, _Socket(identity))
            if known.identity != identity:
                known.identity, known.failures, known.not_before, known.settled = identity, 0, 0.0, False

    def due(self, now: float) -> list[tuple[str, Identity]]:
        """Return the sockets to try now, each of which runs until its outcome is given."""
        begun = []
        for path, socket in self._sockets.items():
            if not socket.settled and socket.running is None and socket.not_before <= now:
                socket.running = socket.identity
                begun.append((path, socket.identity))
        return begun

    def registered(self, path: str, identity: Identity, plugin: RegisteredPlugin) -> bool:
        """Note that the plugin was accepted; return False if its socket is gone, or is another one by now."""
        socket = self._ended(path, identity)
        if socket is None:
            return False
        socket.settled, socket.plugin, socket.failures = True, plugin, 0
        self._registrations += 1
        socket.order = self._registrations
        return True

    def refused(self, path: str, identity: Identity) -> None:
        """Note that the plugin's answer can never be registered: it is tried again only when its socket is replaced."""
        socket = self._ended(path, identity)
        if socket is not None:
            socket.settled, socket.plugin = True, None

    def failed(self, path: str, identity: Identity, now: float) -> float:
        """Note that the plugin did not answer, or must be tried again; return the seconds until then. A plugin that was
        registered through this path stays registered."""
        socket = self._ended(path, identity)
        if socket is None:
            return 0.0
        socket.failures += 1
        wait = RETRIES.delay(socket.failures)
        socket.not_before = now + wait
        return wait

    def updated(self, before: RegisteredPlugin, after: RegisteredPlugin) -> None:
        """Replace a registered plugin that has answered again, unless it was registered again or is gone."""
        for socket in self._sockets.values():
            if socket.plugin == before:
                socket.plugin = after

    def other(self, path: str, kind: str, name: str) -> RegisteredPlugin | None:
        """Return the plugin of this type and name that is registered through another socket."""
        for where, socket in self._sockets.items():
            plugin = socket.plugin
            if where != path and plugin is not None and (plugin.type, plugin.name) == (kind, name):
                return plugin
        return None

    def plugins(self) -> dict[str, RegisteredPlugin]:
        """Return what is registered, by its key in `plugins.registered`; of several sockets of one plugin, the one that
        registered last."""
        return {f"{plugin.type}/{plugin.name}": plugin for plugin in self._by_registration()}

    def named(self, kind: str, name: str) -> list[RegisteredPlugin]:
        """Return the plugins of this type and name, one for each socket, the last registered one first."""
        found = [plugin for plugin in self._by_registration() if (plugin.type, plugin.name) == (kind, name)]
        return found[::-1]

    def _by_registration(self) -> list[RegisteredPlugin]:
        sockets = sorted(self._sockets.values(), key=lambda socket: socket.order)
        return [socket.plugin for socket in sockets if socket.plugin is not None]

    @property
    def complete(self) -> bool:
        """Return whether the list of plugins is everything there is: each socket has had its outcome, or has failed so
        often that it is not waited for any longer. Such a socket is still tried."""
        sockets = self._sockets.values()
        return self._looked and all(socket.settled or socket.failures >= MAX_FAILURES for socket in sockets)

    def next_attempt(self, now: float) -> float | None:
        """Return when the next wait ends; None = none waits."""
        waiting = (s.not_before for s in self._sockets.values() if not s.settled and s.running is None)
        return min((moment for moment in waiting if moment > now), default=None)

    def _ended(self, path: str, identity: Identity) -> _Socket | None:
        """Return the socket whose attempt has ended; None = it is gone, or is another one by now."""
        socket = self._sockets.get(path)
        if socket is None or socket.running != identity:
            return None
        socket.running = None
        return socket if socket.identity == identity else None
