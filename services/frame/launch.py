"""Runs a service in its frame: lock, manifest, configuration, log, bus, beats, watchdog, signals.

A service's `__main__` calls `launch("<name>", build)`; `build` gets a `Context` and returns the service, whose `run`
is the one loop of the process, cancelled by the first signal to end.
"""

import asyncio
import gc
import logging
import os
import signal
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar, runtime_checkable

from msgspec import Struct, field

import shared.process.codec_lookup  # noqa: F401  imports codecs while everything is imported
from bus.interface import Bus
from bus.lock import ServiceLock
from bus.manifest import prepare_run_dir, read_manifest
from bus.messages.manifest import Manifest
from bus.messages.streams import SERVICES
from bus.process_bus import ProcessBus
from services.frame import draining, succession
from services.frame.configuration_in_force import ConfigurationInForce
from services.frame.configuration_wait import ConfigurationWait
from services.frame.debugging import Debugging
from services.frame.event_loop import new_event_loop
from services.frame.exit_codes import REFUSED
from services.frame.generation import supervisor_generation, supervisord_runs
from services.frame.log_configuration import configure_log
from services.frame.metrics import LoopLag, measure_process, serve_metrics
from services.frame.resumption import Resumption
from services.frame.service_log import ServiceLog
from services.frame.signals import Signals
from services.frame.tracing import Tracing
from shared.agent.places import find_places
from shared.config.effective import EffectiveConfig
from shared.config.findings import ConfigurationRefusedError
from shared.errors import OperatorError
from shared.log.klog import structured
from shared.log.process_log import dump_stacks
from shared.metrics.registry import Registry
from shared.model.frozen_copy import replace
from shared.process.deadlines import TICK_SECONDS, Deadlines, WorkThreads
from shared.process.limits import protect_process
from shared.process.task_stacks import task_stacks
from shared.process.watchdog import MAX_BUSY_SECONDS, Watchdog
from shared.time.clock import Clock, SystemClock
from shared.tracing.tracer import Tracer

T = TypeVar("T")

log = logging.getLogger(__name__)

_MAX_END_SECONDS = 5.0  # for the end of `run` after it was cancelled
_MAX_BUS_END_SECONDS = 3.0  # for the end of the bus after that; together less than supervisord waits
_COLLECT_AFTER = (10_000, 20, 20)  # objects made, and collections of the younger generations, before a collection


class Context(Struct, frozen=True):
    """Has what a service gets from the frame; nothing else is global."""

    service: str
    config: EffectiveConfig
    bus: Bus  # not started yet: own/follow/answer in the constructor, the frame starts it before `run`
    clock: Clock
    stopping: asyncio.Event  # set on the first SIGTERM/SIGINT, shortly before `run` is cancelled
    deadlines: Deadlines = field(default_factory=Deadlines)  # work registers here; the watchdog ends a hung process
    metrics: Registry = field(default_factory=Registry)  # of this process; the frame answers GetMetrics with them
    tracer: Tracer = field(default_factory=Tracer)  # of this process; without `tracing` it does nothing
    debugging: Debugging = field(default_factory=Debugging)  # of this process; the frame answers requests with it
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)  # set at each SIGHUP
    resumption: Resumption = field(default_factory=Resumption)  # calls what is due after a suspension of the machine
    in_force: ConfigurationInForce | None = None

    @property
    def newest_config(self) -> EffectiveConfig:
        """The configuration in force. It differs from `config` only in settings for which the service does not
        restart."""
        return self.in_force.newest if self.in_force else self.config


class Service(Protocol):
    """A service as the frame runs it."""

    async def run(self) -> None:
        """Run until cancelled; never return. Must leave containers as they are."""


@runtime_checkable
class Draining(Protocol):
    """Continues open sessions in this process after the hand-over to its successor."""

    async def stop_listening(self) -> None:
        """Release the addresses; open sessions stay open."""

    async def drain(self) -> None:
        """Wait until the last session has ended, for a bounded time."""


class Startup(Protocol):
    """Does bootstrap's work at its start, while every other service waits for the files that it writes. May block."""

    def configure(self) -> EffectiveConfig:
        """Evaluate and write the configuration and the manifest. Raises ConfigurationRefusedError."""

    def log_dir(self) -> str:
        """Return the directory of the log where there is no configuration."""

    def refuse(self, lines: tuple[str, ...]) -> bool:
        """End supervisord, on a first start after printing the lines, and return whether it was ended."""


def launch(service: str, build: Callable[[Context], Service], startup: Startup | None = None) -> NoReturn:
    """Run one service until SIGTERM, then exit the process: 0 after a signal to end, 1 on any failure or a second
    signal. Only bootstrap passes `startup`; the others wait for the configuration that it writes.
    """
    os.umask(0o022)  # as the kubelet: monitoring without root reads cgroups and logs; secret files have their own mode
    frame = _Frame(service, build, startup)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    code = 1
    try:
        code = loop.run_until_complete(frame.run())
    except (ConfigurationRefusedError, OperatorError) as error:
        lines = error.lines if isinstance(error, ConfigurationRefusedError) else (str(error),)
        for line in lines:
            log.error("%s", structured("command failed", err=line) if startup else line)
            frame.log.console.line(f"bulkhead {service}: {line}")
        if startup:
            frame.log.open_anyhow(startup.log_dir())
            code = REFUSED if startup.refuse(lines) else code
    except BaseException:
        log.critical("%s failed", service, exc_info=True)
        if not frame.log.is_open:
            frame.log.console.line(traceback.format_exc())
    frame.leave(code)


class _Frame:
    def __init__(self, service: str, build: Callable[[Context], Service], startup: Startup | None) -> None:
        self.log = ServiceLog(service)
        self._service, self._build, self._startup = service, build, startup
        self._restarting = False  # set when the process ends for a changed configuration
        self._generation = supervisor_generation()
        self._run_dir = Path(find_places().run_dir)

    def leave(self, code: int) -> NoReturn:
        """End the process now, also while threads run; queued log lines get a second."""
        self.log.file.finish()
        os._exit(code)

    async def run(self) -> int:
        """Run the service; return the exit code of the process."""
        signals = Signals(on_second=self._end_at_once)
        signals.install()
        code = await self._run(signals)
        at_stop = signals.ending.is_set() and not signals.handing_over.is_set() and not self._restarting
        if at_stop and supervisord_runs(self._generation):
            await asyncio.to_thread(self._end_others)
        return code

    def _end_others(self) -> None:
        """End processes of earlier supervisords at a stop of the agent. bootstrap ends them for all services, because a
        service that hangs ends none."""
        if self._startup:
            locks = [ServiceLock(self._run_dir, name) for name in (*SERVICES, "containerd", "dockershim")]
            succession.signal_orphans(locks, signal.SIGTERM)
        draining.end_draining(self._run_dir, SERVICES if self._startup else (self._service,))

    async def _run(self, signals: Signals) -> int:
        prepare_run_dir(self._run_dir)
        self.log.open_early(self._run_dir)
        configured: list[EffectiveConfig] = []
        if not self._startup:
            with succession.supervisord_watched(self._generation, signals.ending.set):
                await _unless_ending(self._wait_for_configuration(configured), signals.ending)
        lock = ServiceLock(self._run_dir, self._service, self._generation)
        if not await self._acquire_lock(lock, signals):
            return 0
        if self.log.is_open:
            self.log.file.reopen()  # the earlier holder of the lock may have rotated it
        signals.on_hangup = self.log.file.reopen
        delay = lock.record_start(time.monotonic())
        if delay:
            log.warning("%s started too often of late: waiting %.0f s", self._service, delay)
            if not await _unless_ending(self._back_off(delay, configured), signals.ending):
                return 0
        if self._startup and not await _unless_ending(self._configure(configured), signals.ending):
            return 0
        return await self._serve(configured[0], lock, signals)

    async def _wait_for_configuration(self, configured: list[EffectiveConfig]) -> None:
        configured.append(await ConfigurationWait(self._run_dir, self._generation).wait())

    async def _back_off(self, delay: float, configured: list[EffectiveConfig]) -> None:
        if self._startup:
            await asyncio.sleep(delay)
        else:
            in_force = ConfigurationInForce(self._service, self._run_dir, self._generation, configured[0])
            configured[0] = await in_force.back_off(delay)

    async def _configure(self, configured: list[EffectiveConfig]) -> None:
        assert self._startup is not None
        configured.append(await asyncio.to_thread(self._startup.configure))

    async def _acquire_lock(self, lock: ServiceLock, signals: Signals) -> bool:
        """Return whether this process is to run the service. It ends an orphan even after a signal to end itself."""
        try:
            grace = succession.SHORT_GRACE_SECONDS if self._startup else succession.GRACE_SECONDS
            ours = await succession.acquire_lock(lock, self._generation, grace)
        except OperatorError:
            if signals.ending.is_set():
                return False
            raise
        return ours and not signals.ending.is_set()

    async def _serve(self, config: EffectiveConfig, lock: ServiceLock, signals: Signals) -> int:
        self.log.open(config)
        level = logging.WARNING if self._startup else logging.DEBUG  # the limits are the same for all seven
        protect_process(config.oom_score_adj, config.max_open_files, level)
        log.info("%s started as process %s on node %s", self._service, os.getpid(), config.node_name)
        manifest: Manifest = read_manifest(self._run_dir)
        clock = SystemClock()
        metrics = Registry(self._service)
        tracing = Tracing(self._service, config, metrics)
        bus = ProcessBus(self._service, manifest, clock, lock=lock, metrics=metrics, tracer=tracing.tracer)
        measure_process(metrics)
        serve_metrics(bus, metrics)
        in_force = ConfigurationInForce(self._service, self._run_dir, self._generation, config)
        debugging = Debugging(
            lambda verbosity: configure_log(self.log.file, replace(in_force.newest, verbosity=verbosity))
        )
        debugging.serve(bus)
        stopping = asyncio.Event()
        deadlines = Deadlines(TICK_SECONDS)
        asyncio.get_running_loop().set_default_executor(WorkThreads(thread_name_prefix="blocking"))
        context = Context(
            service=self._service,
            config=config,
            bus=bus,
            clock=clock,
            stopping=stopping,
            deadlines=deadlines,
            metrics=metrics,
            tracer=tracing.tracer,
            debugging=debugging,
            hung_up=signals.hung_up,
            in_force=in_force,
        )
        service = self._build(context)
        loop = asyncio.get_running_loop()
        watchdog = Watchdog(lambda reason: self._hung(reason, loop), deadlines, busy=MAX_BUSY_SECONDS)
        _turn(loop, watchdog, LoopLag(metrics))
        context.resumption.begin(loop)
        watchdog.start()
        await bus.start()
        tracing.start()
        _freeze_memory()
        running = asyncio.create_task(service.run(), name=self._service)
        ending = asyncio.create_task(signals.ending.wait(), name="ending")
        following = asyncio.create_task(self._follow_configuration(in_force, signals), name="configuration")
        await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        following.cancel()
        asked_to_end = not running.done()
        if signals.handing_over.is_set() and isinstance(service, Draining):
            await self._drain(service, bus, lock, running)
        if asked_to_end:
            log.info("%s is ending; containers stay as they are", self._service)
            stopping.set()
            running.cancel()
            await asyncio.wait({running}, timeout=_MAX_END_SECONDS)
        try:
            code = self._outcome(running, asked_to_end)
            if code == 0:
                lock.record_end()
            return code
        finally:
            await self._hang_up(bus)
            await tracing.close()
            watchdog.stop()

    async def _follow_configuration(self, in_force: ConfigurationInForce, signals: Signals) -> None:
        """End the process after a change of the configuration for which this service has to be restarted."""
        if await in_force.follow(lambda config: configure_log(self.log.file, config)) and not signals.ending.is_set():
            self._restarting = True
            signals.ending.set()

    async def _drain(
        self, service: Draining, bus: ProcessBus, lock: ServiceLock, running: "asyncio.Task[None]"
    ) -> None:
        """Hand over to the successor, and wait for the last session."""
        if draining.take_place(self._run_dir, self._service, self._generation) is None:
            log.warning("%s: too many earlier processes drain: open sessions end", self._service)
            return
        await service.stop_listening()
        await bus.give_up_address()
        lock.release()
        log.info("%s has handed over; it ends with its last open session", self._service)
        drained = asyncio.ensure_future(service.drain())
        await asyncio.wait({drained, running}, return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()

    async def _hang_up(self, bus: ProcessBus) -> None:
        """Stop the bus, for a bounded time: no successor can begin while this process holds the lock."""
        hanging_up = asyncio.create_task(bus.stop(), name="bus")
        await asyncio.wait({hanging_up}, timeout=_MAX_BUS_END_SECONDS)
        if not hanging_up.done():
            log.error("%s: its bus did not end within %.0f s", self._service, _MAX_BUS_END_SECONDS)
        elif error := hanging_up.exception():
            log.error("%s: its bus ended with an error", self._service, exc_info=error)

    def _outcome(self, running: asyncio.Task[None], asked_to_end: bool) -> int:
        if not running.done():
            log.error("%s did not end within %.0f s", self._service, _MAX_END_SECONDS)
            return 1
        if running.cancelled():
            return 0 if asked_to_end else 1
        if error := running.exception():
            raise error
        if not asked_to_end:
            log.error("%s: its loop ended by itself", self._service)
        return 0 if asked_to_end else 1

    def _hung(self, reason: str, loop: asyncio.AbstractEventLoop) -> None:
        """Log the stacks of tasks and threads and end the process. Runs in the watchdog's thread."""
        log.critical("%s: %s; it ends, and its stacks follow", self._service, reason)
        try:
            log.critical("tasks of %s:\n%s", self._service, task_stacks(loop))
        except Exception:  # the loop may change its tasks meanwhile
            log.exception("the tasks of %s cannot be shown", self._service)
        self.log.file.finish()  # so that these lines come before the dump, which the log's thread does not write
        dump_stacks(self.log.file)
        os._exit(1)

    def _end_at_once(self) -> None:
        log.warning("%s: a second signal to end: ending at once", self._service)
        self.leave(1)


async def _unless_ending(work: Awaitable[T], ending: asyncio.Event) -> bool:
    """Do the work; return False where the process was signalled to end first. Raises what the work raises."""
    task, end = asyncio.ensure_future(work), asyncio.ensure_future(ending.wait())
    await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
    end.cancel()
    if task.done():
        task.result()
        return not ending.is_set()
    task.cancel()
    return False


def _freeze_memory() -> None:
    """Exclude all present objects from garbage collection, because they stay until the end: a collection of them would
    stop the loop for tens of milliseconds, and write to memory that is shared."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def _turn(loop: asyncio.AbstractEventLoop, watchdog: Watchdog, lag: LoopLag) -> None:
    watchdog.turned()
    lag.turned(loop.time(), TICK_SECONDS)
    loop.call_later(TICK_SECONDS, _turn, loop, watchdog, lag)
