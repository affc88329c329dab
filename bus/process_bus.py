"""Implements `bus.interface.Bus` for a real process over ZeroMQ ipc sockets: connects the sockets to the endpoint.

Decides when beats are sent and in which order things start and stop; touches no socket itself."""

import asyncio
import logging
import os
import secrets
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bus.beat import next_beat_in
from bus.caller import Caller
from bus.context import Context, new_context
from bus.endpoint import Endpoint
from bus.frames import AnswerHead, Frames
from bus.interface import NoAnswerError
from bus.lock import ServiceLock
from bus.messages.manifest import Manifest
from bus.sockets import Answerer, Publisher, Subscriber
from shared.errors import OperatorError
from shared.metrics.registry import Registry
from shared.time.clock import Clock, SystemClock
from shared.tracing.tracer import Tracer

T = TypeVar("T")

log = logging.getLogger(__name__)


class ProcessBus(Endpoint):
    """Connects one service to the others.

    `lock`: the service's lock, held. Without it the bus takes the lock at its start (OperatorError when another process
    holds it) and releases it at its stop. A service that is not in the manifest may ask and follow, but has no address
    to bind."""

    def __init__(
        self,
        service: str,
        manifest: Manifest,
        clock: Clock | None = None,
        *,
        lock: ServiceLock | None = None,
        metrics: Registry | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        super().__init__(service, secrets.token_hex(6), os.getpid(), clock or SystemClock(), metrics, tracer)
        self._addresses = manifest.addresses
        self._lock = lock or ServiceLock(Path(manifest.run_dir), service)
        self._lock_is_ours = lock is None
        self._tasks: list[asyncio.Task[None]] = []
        self._context: Context
        self._publisher: Publisher | None = None
        self._answerer: Answerer | None = None
        self._subscriber: Subscriber | None = None
        self._caller: Caller | None = None

    async def start(self) -> None:
        """Bind, connect, and send a beat. Raises OperatorError when the lock is held, or an address cannot be bound."""
        self._refuse_when_started("start")
        services = self.followed_services() | (set(self._addresses) if self._beat_callbacks else set())
        if unknown := services - set(self._addresses):
            raise ValueError(f"{self.service} follows {sorted(unknown)}, which the manifest does not list")
        if self.service in self._addresses:
            self._secure_lock()
        self._context = new_context()
        self._started = True
        try:
            self._open(services)
        except BaseException:
            await self.stop()
            raise

    def _open(self, services: set[str]) -> None:
        requests = {service: address["req"] for service, address in self._addresses.items()}
        client = f"{self.service}/{self.incarnation}"
        self._caller = Caller(self._context, client, requests, self.clock, self.drops, self.tracer)
        if self.service in self._addresses:
            self._publisher = Publisher(self._context, self.beat_soon, self.drops)
            self._publisher.bind(self._addresses[self.service]["pub"])
            self._answerer = Answerer(self._context, self.answers, self.drops)
            self._answerer.bind(self._addresses[self.service]["req"])
        if services:
            self._subscriber = Subscriber(self._context, self.receive)
            for topic in self.followed_topics():
                self._subscriber.subscribe(topic)
            for service in services:
                self._subscriber.connect(self._addresses[service]["pub"])
            self._subscriber.open()
        self._run(self._beat_every_second(), "beats")

    async def stop(self) -> None:
        """Close the sockets; answers already sent get up to a second to leave. A bus does not start twice."""
        if not self._started:
            return
        if self._subscriber:
            self._subscriber.close()
        self._cancel_fetches()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._fetches, return_exceptions=True)
        if self._publisher:
            self._publisher.close()
        if self._caller:
            self._caller.close()
        if self._answerer:
            await self._answerer.close()
        await asyncio.to_thread(self._context.term)  # in a thread, because lingering answers take up to a second
        self._publisher = self._caller = None
        if self._lock_is_ours:
            self._lock.release()

    async def give_up_address(self) -> None:
        """Stop to publish and answer, so that another process may bind; continue to follow and ask."""
        if self._publisher:
            self._publisher.close()
        if self._answerer:
            await self._answerer.close()
        self._publisher = self._answerer = None

    def _publish(self, published: Frames) -> None:
        if self._publisher:
            self._publisher.send(published)

    async def _exchange(self, service: str, type_name: str, body: bytes, timeout: float) -> tuple[AnswerHead, bytes]:
        if self._caller is None:
            raise NoAnswerError(f"{self.service} did not ask {service} for {type_name}: its bus is stopped")
        return await self._caller.exchange(service, type_name, body, timeout)

    def _secure_lock(self) -> None:
        if not self._lock.held and not self._lock.try_acquire():
            raise OperatorError(
                f"{self.service} is running already, as process {self._lock.holder() or 'unknown'}",
                where=str(self._lock.path),
                remedy="stop that process first",
            )

    def _run(self, loop: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(loop, name=f"bus {name}")
        task.add_done_callback(self._report_failure)
        self._tasks.append(task)

    def _report_failure(self, task: asyncio.Task[None]) -> None:
        """Report the end of a loop of the bus. No loop should end by itself: this process would then not send or not
        receive."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("%s ended", task.get_name(), exc_info=error)
            self.trouble(task.get_name(), f"{task.get_name()} ended: {type(error).__name__}; restart {self.service}")

    async def _beat_every_second(self) -> None:
        while True:
            self.beat()
            self.tick()
            await asyncio.sleep(next_beat_in(self.clock.monotonic()))
