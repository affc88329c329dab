"""bootstrap's keepers of certificates between a store on disk and the API server's double, on virtual time."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bus.messages.beat import Beat
from services.bootstrap.adapters.certificate_forms import CertificateForms
from services.bootstrap.adapters.certificate_store import CertificateStore
from services.bootstrap.adapters.kubeconfig import KubeconfigReport
from services.bootstrap.adapters.node_credentials import client_store
from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from services.bootstrap.controllers.certificate_rotation import CertificateRotation
from services.bootstrap.controllers.csr_credentials import ClientCsrCredentials
from services.bootstrap.controllers.tls_bootstrap import TlsBootstrap
from services.bootstrap.core.certificate_template import Template, client_template
from services.frame.launch import Context
from services.frame.resumption import Resumption
from shared.config.effective import EffectiveConfig
from shared.kube.interface import ApiClient
from shared.metrics.registry import Registry
from tests.fakes.api_resources import NEWEST, OlderServer
from tests.fakes.api_server import FakeApiServer
from tests.fakes.api_signer import Signer
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.virtual_time import ended, pass_time, virtual_clock

NODE, BOOTSTRAP = "system:node:n1", "system:bootstrap:abcdef"
REPORT = KubeconfigReport(
    material=ResolvedCredentials(server="https://api:6443", token="t0p"), cluster={"server": "https://api:6443"}
)


async def at_once(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What `asyncio.to_thread` is elsewhere: virtual time waits for no thread."""
    return work(*arguments, **named)


class Stage:
    """One node; `begin` starts bootstrap and `kill` ends it."""

    def __init__(self, directory: Path, *, drops: OlderServer = NEWEST, version: str = "v1", **more: Any) -> None:
        self.network = MemoryNetwork(virtual_clock())
        self.server = FakeApiServer(self.network.clock, drops=drops)
        self.signer = Signer(self.server, version=version)
        run_dir = directory / "run"
        run_dir.mkdir()
        self.config = EffectiveConfig(
            node_name="n1",
            root_dir=str(directory),
            run_dir=str(run_dir),
            log_dir="",
            cert_dir=str(directory / "pki"),
            kubeconfig=str(directory / "kubelet.conf"),
            bootstrap_kubeconfig=str(directory / "bootstrap.conf"),
            **more,
        )
        self.beats: list[Beat] = []
        self.template: Template | None = client_template("n1")
        self.resolved = 0
        self.bootstrap = REPORT  # the content of the bootstrap kubeconfig
        self.keeper: CertificateRotation
        self._task: asyncio.Task[None] | None = None
        self._listening = False

    @property
    def store(self) -> CertificateStore:
        return client_store(self.config)

    @property
    def troubles(self) -> tuple[str, ...]:
        """The troubles of the newest beat."""
        return self.beats[-1].troubles if self.beats else ()

    @property
    def users(self) -> list[str]:
        """Who created requests, in order."""
        return [csr["spec"]["username"] for csr in self.signer.requests()]

    async def begin(self, *, forced: bool = False) -> None:
        """Start the rotation of the client certificate."""

        def make(context: Context) -> Coroutine[Any, Any, None]:
            self.keeper = CertificateRotation(
                context,
                "client certificate",
                self.store,
                lambda: self.template,
                self._requester(context),
                at_once=forced,
                forms=CertificateForms(),
                in_thread=at_once,
                chance=random.Random(7),
            )
            return self.keeper.run()

        await self._live(make)

    async def begin_first(self) -> None:
        """Start without rotation."""

        def make(context: Context) -> Coroutine[Any, Any, None]:
            first = TlsBootstrap(
                context,
                REPORT,
                self._requester(context),
                forms=CertificateForms(),
                inspect_bootstrap=lambda _: self.bootstrap,
                in_thread=at_once,
            )
            return first.run()

        await self._live(make)

    async def kill(self) -> None:
        """What is not on disk is gone. Raises what has ended bootstrap before."""
        assert self._task is not None
        try:
            await ended(self._task)
        finally:
            self.network.kill("bootstrap")

    async def passes(self, seconds: float) -> None:
        await pass_time(self.network, seconds)

    @property
    def is_done(self) -> bool:
        """Whether it has ended by itself."""
        assert self._task is not None
        return self._task.done() and self._task.exception() is None

    async def _live(self, make: Callable[[Context], Coroutine[Any, Any, None]]) -> None:
        if not self._listening:
            self._listening = True
            listener = self.network.bus("server")
            listener.on_beat(lambda beat: self.beats.append(beat) if beat.service == "bootstrap" else None)
            await listener.start()
        bus = self.network.bus("bootstrap")
        self.metrics = Registry("bootstrap")
        clock = self.network.clock
        self.resumption = Resumption(lambda: clock.suspended)
        running = make(
            Context(
                "bootstrap", self.config, bus, clock, asyncio.Event(), metrics=self.metrics, resumption=self.resumption
            )
        )
        await bus.start()
        self._task = asyncio.create_task(running)
        await self.passes(1)

    def _requester(self, context: Context) -> ClientCsrCredentials:
        return ClientCsrCredentials(context, connect=self._connect, resolve=self._resolve, in_thread=at_once)

    def _connect(self, run_dir: Path) -> ApiClient:
        return self.server.client(BOOTSTRAP if run_dir.name == "requesting" else NODE)

    def _resolve(self, *_: Any, **__: Any) -> KubeconfigReport:
        self.resolved += 1
        return REPORT
