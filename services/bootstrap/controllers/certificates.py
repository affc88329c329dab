"""Builds the rotations of the certificates that this configuration requires, and connects them to bus and stores.

The serving certificate's names come from the stream `node.object`, which is followed only where they are needed.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from bus.interface import OwnedStream
from bus.messages.bootstrap import CertificateState
from bus.messages.streams import NODE_OBJECT
from services.bootstrap.adapters.certificate_forms import InspectedPair
from services.bootstrap.adapters.certificate_store import StoredPair
from services.bootstrap.adapters.node_credentials import client_store, serving_store
from services.bootstrap.controllers.certificate_metrics import CLIENT, SERVING
from services.bootstrap.controllers.certificate_rotation import CertificateRotation
from services.bootstrap.controllers.csr_credentials import ClientCsrCredentials, NodeCsrCredentials, connect_as
from services.bootstrap.controllers.startup_credentials import StartupCredentials
from services.bootstrap.controllers.tls_bootstrap import TlsBootstrap
from services.bootstrap.core.certificate_template import Template, client_template, serving_template
from services.bootstrap.core.client_plan import ClientPlan
from services.frame.launch import Context
from shared.time.timestamps import rfc3339

_DNS_ONLY = "AllowDNSOnlyNodeCSR"


class Certificates:
    """The certificates of the node. Create it before the bus starts; `start` starts the loops. `client_changed` is
    called at each new content of the client certificate's store."""

    def __init__(
        self,
        context: Context,
        credentials: StartupCredentials,
        certificates: OwnedStream[CertificateState],
        client_changed: Callable[[], None],
    ) -> None:
        self._context, self._config = context, context.config
        self._certificates, self._client_changed = certificates, client_changed
        self._first: TlsBootstrap | None = None
        self._rotations: list[CertificateRotation] = []
        if self._config.joins_cluster:
            if self._config.rotate_certificates:
                self._rotations.append(self._client_rotation(at_once=credentials.rotate_at_once))
            elif credentials.plan is ClientPlan.BOOTSTRAP_ONCE and credentials.bootstrap is not None:
                self._first = TlsBootstrap(context, credentials.bootstrap, ClientCsrCredentials(context))
        if self._config.server_tls_bootstrap:
            self._rotations.append(self._serving_rotation())

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run what there is."""
        if self._first is not None:
            tasks.create_task(self._first.run(), name="first certificate")
        for rotation in self._rotations:
            tasks.create_task(rotation.run(), name="certificate")

    def look_again(self) -> None:
        """Replace a certificate now that is due or has ended by the wall clock: the API server refused the node."""
        for rotation in self._rotations:
            rotation.wake()

    def _client_rotation(self, *, at_once: bool) -> CertificateRotation:
        template, store = client_template(self._config.node_name), client_store(self._config)
        known = store.mark()

        def changed(pair: StoredPair, _: InspectedPair) -> None:
            if pair.mark != known:
                self._client_changed()

        return CertificateRotation(
            self._context,
            CLIENT,
            store,
            lambda: template,
            ClientCsrCredentials(self._context),
            on_change=changed,
            at_once=at_once,
        )

    def _serving_rotation(self) -> CertificateRotation:
        """Return the rotation of the serving certificate. On a node that runs alone it publishes the certificate in the
        store, and sends no request."""
        node = self._context.bus.follow(NODE_OBJECT, lambda _: rotation.wake())

        def template() -> Template | None:
            found = node.state.get("node")
            addresses = ((found.node.get("status") or {}).get("addresses") or ()) if found is not None else ()
            dns_only_allowed = self._config.feature_gates.get(_DNS_ONLY, False)
            return serving_template(self._config.node_name, addresses, dns_only_allowed=dns_only_allowed)

        connect = connect_as(self._config.emulated_version)
        credentials = NodeCsrCredentials(Path(self._config.run_dir), connect)
        rotation = CertificateRotation(
            self._context,
            SERVING,
            serving_store(self._config),
            template,
            credentials,
            on_change=self._announce,
        )
        return rotation

    def _announce(self, pair: StoredPair, found: InspectedPair) -> None:
        state = CertificateState(
            certificate_file=str(pair.files.certificate),
            private_key_file=str(pair.files.key),
            not_after=rfc3339(found.facts.not_after),
            self_signed=False,
        )
        self._certificates.put("serving", state, "in the certificate store")
