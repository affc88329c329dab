"""Selects the API credentials for certificate signing requests: the node's own, or those of a kubeconfig while the node
has none that are usable. Holds clients, no keys."""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from services.bootstrap.adapters.credential_files import CredentialFiles
from services.bootstrap.adapters.kubeconfig import KubeconfigReport
from services.bootstrap.adapters.node_credentials import resolve_requesting
from services.bootstrap.core.certificate_template import CertificateFacts
from services.bootstrap.core.client_plan import asks_as_node
from services.frame.launch import Context
from shared.errors import OperatorError
from shared.kube.client import kube_client
from shared.kube.interface import ApiClient

log = logging.getLogger(__name__)

REQUESTING = "requesting"  # a directory below the run directory with the credentials for the first certificate
_TIMEOUT_SECONDS = 30.0  # of one request

Connect = Callable[[Path], ApiClient]  # run directory -> client


def connect_as(release: str) -> Connect:
    """Return what opens a client with the library's own rate limit (config.md 6.1); `release`: one of RELEASES."""
    return partial(kube_client, qps=0, burst=0, timeout=_TIMEOUT_SECONDS, release=release)


class NodeCsrCredentials:
    """Selects the node's own credentials, whatever they are."""

    def __init__(self, run_dir: Path, connect: Connect) -> None:
        self._run_dir, self._connect = run_dir, connect
        self._client: ApiClient | None = None

    async def open(self, _: CertificateFacts | None) -> ApiClient:
        """Return the client with the node's credentials."""
        self._client = self._client or self._connect(self._run_dir)
        return self._client

    async def refused(self) -> None:
        """Do nothing, because other parts bring new credentials into force."""

    async def served(self) -> None:
        """Close the connections, which are not needed for a long time."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class ClientCsrCredentials:
    """Selects the credentials for the client certificate: the present certificate while it is valid, else the bootstrap
    kubeconfig, else the other credentials of the kubeconfig."""

    def __init__(
        self,
        context: Context,
        *,
        connect: Connect | None = None,
        resolve: Callable[..., KubeconfigReport] = resolve_requesting,
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self._config, self._clock = context.config, context.clock
        self._resolve, self._in_thread = resolve, in_thread
        run_dir, connect = Path(context.config.run_dir), connect or connect_as(context.config.emulated_version)
        self._own = NodeCsrCredentials(run_dir, connect)
        self._files = CredentialFiles(run_dir / REQUESTING)
        self._other = NodeCsrCredentials(run_dir / REQUESTING, connect)
        self._own_refused = False
        self._logged = ""

    async def open(self, facts: CertificateFacts | None) -> ApiClient:
        """Return the client. Raise OperatorError, OSError where there are no usable credentials."""
        wall = self._clock.wall()
        own_valid = facts is not None and facts.not_after > wall
        bootstrap = bool(self._config.bootstrap_kubeconfig)
        if asks_as_node(own_valid=own_valid, own_refused=self._own_refused, bootstrap_usable=bootstrap):
            self._log_use("the present certificate")
            return await self._own.open(facts)
        report = await self._in_thread(self._resolve, self._config, wall, bootstrap_first=self._own_refused)
        if report.material is None:
            problem = report.problems[0] if report.problems else "there are no credentials to ask with"
            if not own_valid and (facts is not None or not await self._in_thread(self._has_own)):
                raise OperatorError(problem)
            self._own_refused = False
            self._log_use(f"the certificate in force, for lack of another way: {problem}")
            return await self._own.open(facts)
        await self._in_thread(self._files.prepare)
        await self._in_thread(self._files.put, report.material)
        self._log_use(f"the credentials for {report.material.server}")
        return await self._other.open(facts)

    async def refused(self) -> None:
        """Use the bootstrap kubeconfig for the next attempt, where there is one, and the node's own credentials for the
        one after it: a server may answer 401 only for a while, and a bootstrap token may have expired."""
        self._own_refused = not self._own_refused

    async def served(self) -> None:
        """Drop the other credentials, because the new certificate is used from now on."""
        self._own_refused = False
        await self._own.served()
        await self._other.served()
        await self._in_thread(shutil.rmtree, self._files.directory.parent, ignore_errors=True)

    def _has_own(self) -> bool:
        """Return whether services still have a certificate, although the store has lost it."""
        if not self._config.rotate_certificates:
            return False
        present = CredentialFiles(Path(self._config.run_dir)).present()
        return present is not None and bool(present.client_certificate_file)

    def _log_use(self, whom: str) -> None:
        if whom != self._logged:
            log.info("asking for a client certificate with %s", whom)
        self._logged = whom
