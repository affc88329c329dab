"""Requests the client certificate once with the bootstrap kubeconfig, then writes the kubeconfig; without rotation.

The key is kept in `<cert-dir>/kubelet-client.key.tmp` and the request's name follows from it, so that the same request
is found after a kill at any point (config.md 5.4). A kubelet does this before anything else; here it is done in the
background, because static pods must not wait.
"""

import asyncio
import base64
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from services.bootstrap.adapters import signing_api
from services.bootstrap.adapters.certificate_child import CertificateChild
from services.bootstrap.adapters.certificate_forms import CertificateForms, CertificateRequest
from services.bootstrap.adapters.certificate_store import make_directory
from services.bootstrap.adapters.kubeconfig import KubeconfigReport
from services.bootstrap.adapters.node_credentials import client_store, inspect_bootstrap, write_kubeconfig
from services.bootstrap.adapters.pending_request import PendingRequest
from services.bootstrap.adapters.resolved_credentials import ProblemError
from services.bootstrap.controllers.certificate_rotation import CsrCredentials, inspect_issued, store_pair, unusable
from services.bootstrap.controllers.csr_attempt import FAILURES, CsrAttempt, CsrFailures, RefusedError
from services.bootstrap.core.certificate_template import client_template
from services.bootstrap.core.rotation import REFUSED_PAUSE_SECONDS
from services.bootstrap.core.signing_request import deterministic_name, request_text, signer_of
from services.frame.launch import Context
from shared.config.effective import EffectiveConfig
from shared.files.atomic import write_atomically
from shared.model.objects import Object
from shared.process.crash import crash_point

log = logging.getLogger(__name__)

_MAX_ISSUANCE_SECONDS = 3600.0  # for which the answer to a request is awaited


class TlsBootstrap:
    """Requests the client certificate. `bootstrap`: the cluster of the bootstrap kubeconfig."""

    def __init__(
        self,
        context: Context,
        bootstrap: KubeconfigReport,
        credentials: CsrCredentials,
        *,
        forms: CertificateForms | None = None,
        inspect_bootstrap: Callable[[EffectiveConfig], KubeconfigReport] = inspect_bootstrap,
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
        chance: random.Random | None = None,
    ) -> None:
        self._context, self._config = context, context.config
        self._bootstrap, self._credentials = bootstrap, credentials
        self._inspect_bootstrap = inspect_bootstrap
        self._forms, self._in_thread = forms or CertificateChild(), in_thread
        self._store = client_store(context.config)
        self._key_file = Path(context.config.cert_dir) / "kubelet-client.key.tmp"
        self._attempts = CsrFailures(context, "client certificate", (chance or random.SystemRandom()).random)

    async def run(self) -> None:
        """Request the certificate, and return once the kubeconfig is written."""
        while True:
            try:
                await self._ask()
            except RefusedError as error:
                await self._pause(error, self._attempts.failed(error))
            except FAILURES as error:
                await asyncio.sleep(self._attempts.failed(error))
            else:
                self._attempts.good()
                await self._credentials.served()
                return

    async def _pause(self, error: RefusedError, seconds: float) -> None:
        """Wait after a refusal until the request is deleted, or `seconds` are over."""
        try:
            if error.request is not None:
                api = await self._credentials.open(None)
                await signing_api.gone(api, error.request, seconds)
                return
        except FAILURES as failure:
            log.debug("client certificate: %s", failure)
        await asyncio.sleep(REFUSED_PAUSE_SECONDS)

    async def _ask(self) -> None:
        template = client_template(self._config.node_name)
        api = await self._credentials.open(None)
        encipherment = await signing_api.demands_encipherment(api)
        made = await self._in_thread(self._made_request)
        encipherment = encipherment or made.is_rsa
        name = deterministic_name(base64.b64decode(made.public_key), template, encipherment=encipherment)
        until = self._context.clock.wall() + _MAX_ISSUANCE_SECONDS
        pending = PendingRequest(
            name=name, template=template, request=made.request, key=made.key, encipherment=encipherment, until=until
        )

        async def accepted(_: PendingRequest) -> None:
            """Save nothing, because the request's name follows from the key."""

        async def stranger(found: Object) -> str:
            same_signer = signer_of(found) == template.signer
            ours = await self._in_thread(self._forms.is_ours, request_text(found), made.key, template)
            remedy = "delete it to have it made again"
            return "" if same_signer and ours else f"{name} is there and is not the request of our key ({remedy})"

        attempt = CsrAttempt(self._context.clock.wall, accepted, stranger, self._attempts.waits)
        certificate = await attempt.certificate(api, pending)
        await self._take(pending, certificate)

    def _made_request(self) -> CertificateRequest:
        """Return the request, made with the existing key or with a new one, which is on disk before it is used."""
        template = client_template(self._config.node_name)
        self._store.recover()
        if self._store.current.exists() and (pair := self._store.read()) is not None:
            try:
                return self._forms.make(template, pair.key)
            except ProblemError as error:
                raise unusable(pair, error) from None
        try:
            return self._forms.make(template, self._key_file.read_text(encoding="ascii"))
        except (FileNotFoundError, ProblemError, UnicodeDecodeError) as error:
            if not isinstance(error, FileNotFoundError):
                log.warning("%s holds no key: another one is made", self._key_file)
        made = self._forms.make(template)
        make_directory(self._key_file.parent)
        write_atomically(self._key_file, made.key.encode(), 0o600)
        crash_point("bootstrap.request.noted")
        return made

    async def _take(self, pending: PendingRequest, certificate: str) -> None:
        wall = self._context.clock.wall()
        found = await inspect_issued(self._forms, self._in_thread, pending, certificate, wall)
        now = await self._in_thread(self._inspect_bootstrap, self._config)  # the file may have changed since the start
        bootstrap = self._bootstrap if now.problems else now
        if not bootstrap.cluster:
            raise ProblemError("the bootstrap kubeconfig named no cluster (write clusters, users and contexts)")
        await self._in_thread(store_pair, self._store, self._forms, found, wall)
        await self._in_thread(self._key_file.unlink, missing_ok=True)
        crash_point("bootstrap.key.removed")
        await self._in_thread(write_kubeconfig, self._config, bootstrap)
        crash_point("bootstrap.kubeconfig.written")
        log.info("%s is written: the node has a client certificate", self._config.kubeconfig)
