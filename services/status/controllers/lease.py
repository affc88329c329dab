"""Renews the node's Lease in a task of its own, through the client without a rate limit (node.md 2)."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from bus.interface import Change, Deleted, Put
from bus.messages.sources import NodeObject
from bus.messages.streams import NODE_OBJECT
from services.frame.launch import Context
from services.status.adapters.clients import Clients
from services.status.core.lease import JITTER, has_owner, new_lease, read_timeout, renew_interval, renewed
from shared.kube import paths
from shared.kube.interface import ApiError, ApiStatusError
from shared.model import objects
from shared.model.objects import Object
from shared.time.backoff import Backoff
from shared.time.timestamps import rfc3339_micro

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5  # of one renewal, without a pause
RETRIES = Backoff(initial=0.2, cap=7.0)  # between tries to find or create the Lease
MIN_PAUSE_SECONDS = 1.0  # between two renewals
TROUBLE = "lease"  # also the loop whose progress is the time of the last renewal


class Lease:
    """Renews the Lease every quarter of its duration. `chance` returns a number in [0, 1) for the jitter."""

    def __init__(self, context: Context, clients: Clients, *, chance: Callable[[], float] = random.random) -> None:
        self._bus, self._clock = context.bus, context.clock
        self._client, self._chance = clients.heartbeat, chance
        self._name, self._duration = context.config.node_name, context.config.node_lease_duration
        self._read_timeout = read_timeout(self._duration)
        self._cached: Object | None = None  # as the API server last returned it
        self._owner_uid = ""  # the Node's uid, as soon as it is known
        self._owner_known = asyncio.Event()
        self._trouble = ""
        self.is_refused = False  # by the last answer of the API server: the node may not renew its Lease
        self._renewing: asyncio.Timeout | None = None  # of the renewal under way
        self._reconnects = False  # the connections may be dead since the machine was suspended
        self._bus.follow(NODE_OBJECT, self._on_node)
        context.resumption.subscribe(self._resumed)

    def owned_by(self, uid: str) -> None:
        """Set the uid that the Node has now; the Lease gets it at once."""
        if uid and uid != self._owner_uid:
            self._owner_uid = uid
            self._owner_known.set()

    def _resumed(self, seconds: float) -> None:
        """Renew the Lease now, because the machine was suspended for these seconds. A renewal under way is ended, as it
        may wait for an answer on a connection that is gone."""
        self._reconnects = True
        self._owner_known.set()
        if self._renewing is not None and not self._renewing.expired():
            self._renewing.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Renew until cancelled."""
        interval = renew_interval(self._duration)
        while True:
            self._owner_known.clear()
            began = self._clock.monotonic()
            await self._renew_once()
            # The interval is from the beginning of one renewal to that of the next, so that a slow API server does not
            # let the Lease expire.
            due = began + interval * (1 + JITTER * self._chance())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(due - self._clock.monotonic(), MIN_PAUSE_SECONDS)):
                    await self._owner_known.wait()

    def _on_node(self, change: Change[NodeObject]) -> None:
        match change:
            case Put(_, value):
                self.owned_by(objects.uid(value.node))
            case Deleted():
                self._owner_uid = ""

    async def _renew_once(self) -> None:
        if self._reconnects:
            self._reconnects = False
            await self._client.drop_connections()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as self._renewing:
                await self._renew()
        self._renewing = None

    async def _renew(self) -> None:
        if self._cached is not None and await self._updated(self._cached):
            return
        found = await self._ensured()
        if found is not None:
            await self._updated(found)

    async def _updated(self, lease: Object) -> bool:
        """Write the present moment into the Lease; return False if five tries failed."""
        for attempt in range(MAX_ATTEMPTS):
            owner = self._owner_uid or ("" if has_owner(lease) else await self._looked_up_owner())
            try:
                now = rfc3339_micro(self._clock.wall())
                body = renewed(lease, self._name, self._duration, now, owner)
                self._renewed(await self._client.update(paths.lease(self._name), body))
                return True
            except ApiError as error:
                self._failed(error)
                if attempt:
                    await self._client.drop_connections()
                if isinstance(error, ApiStatusError) and (error.conflict or error.not_found):
                    found = await self._ensured()
                    if found is None:
                        return True
                    lease = found
        return False

    async def _ensured(self) -> Object | None:
        """Return the Lease that is to be renewed, or create it. Return None if nothing more is to be done in this turn:
        it was created, or cannot be created before its Node exists. Tries until the API server answers."""
        failures = 0
        while True:
            try:
                return await self._client.get(paths.lease(self._name), timeout=self._read_timeout)
            except ApiError as error:
                failure = error
            if isinstance(failure, ApiStatusError) and failure.not_found:
                try:
                    await self._create()
                    return None
                except ApiError as error:
                    failure = error
            self._failed(failure)
            failures += 1
            if failures > 1:
                await self._client.drop_connections()
            await asyncio.sleep(RETRIES.delay(failures))

    async def _create(self) -> None:
        self._cached = None
        owner = await self._looked_up_owner()
        if owner:
            now = rfc3339_micro(self._clock.wall())
            lease = new_lease(self._name, self._duration, now, owner)
            self._renewed(await self._client.create(paths.LEASES, lease))

    async def _looked_up_owner(self) -> str:
        """Return the Node's uid from the API server; "" when there is no Node, or no answer."""
        try:
            return objects.uid(await self._client.get(paths.node(self._name), timeout=self._read_timeout))
        except ApiError:
            return ""

    def _renewed(self, lease: Object) -> None:
        self._cached, self.is_refused = lease, False
        self._bus.progress(TROUBLE)  # the beat contains the moment, and `bulkhead status` shows the age of the lease
        if self._trouble:
            log.info("the lease is renewed again")
            self._trouble = ""
            self._bus.trouble(TROUBLE, None)

    def _failed(self, error: ApiError) -> None:
        line = f"the lease cannot be renewed: {error}"
        if isinstance(error, ApiStatusError):
            self.is_refused = error.code in (401, 403)
        if line != self._trouble:
            log.warning("%s", line)
            self._trouble = line
            self._bus.trouble(TROUBLE, line)
