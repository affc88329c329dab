"""Which certificates are asked for in this configuration, by whom and for what; wires keepers to bus and store.

The serving certificate's names come from the stream `node.object`, followed only where they are needed.
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
from services.bootstrap.certificate_keeper import CertificateKeeper
from services.bootstrap.core.certificate_template import Template, client_template, serving_template
from services.bootstrap.core.client_plan import ClientPlan
from services.bootstrap.credential_door import CredentialDoor
from services.bootstrap.first_certificate import FirstCertificate
from services.bootstrap.requesters import ClientRequester, OrdinaryRequester
from services.frame.launch import Context
from shared.timestamps import rfc3339

_DNS_ONLY = "AllowDNSOnlyNodeCSR"


class CertificateTasks:
    """Create it before the bus starts; `start` adds the loops to the service's own. `client_changed` hears of each new
    content of the client certificate's store."""

    def __init__(
        self,
        context: Context,
        credentials: CredentialDoor,
        certificates: OwnedStream[CertificateState],
        client_changed: Callable[[], None],
    ) -> None:
        self._context, self._config = context, context.config
        self._certificates, self._client_changed = certificates, client_changed
        self._first: FirstCertificate | None = None
        self._keepers: list[CertificateKeeper] = []
        if self._config.joins_cluster:
            if self._config.rotate_certificates:
                self._keepers.append(self._client_keeper(at_once=credentials.rotate_at_once))
            elif credentials.plan is ClientPlan.BOOTSTRAP_ONCE and credentials.bootstrap is not None:
                self._first = FirstCertificate(context, credentials.bootstrap, ClientRequester(context))
        if self._config.server_tls_bootstrap:
            self._keepers.append(self._serving_keeper())

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run what there is."""
        if self._first is not None:
            tasks.create_task(self._first.run(), name="first certificate")
        for keeper in self._keepers:
            tasks.create_task(keeper.run(), name="certificate")

    def _client_keeper(self, *, at_once: bool) -> CertificateKeeper:
        template, store = client_template(self._config.node_name), client_store(self._config)
        known = store.mark()

        def changed(pair: StoredPair, _: InspectedPair) -> None:
            if pair.mark != known:
                self._client_changed()

        return CertificateKeeper(
            self._context,
            "client certificate",
            store,
            lambda: template,
            ClientRequester(self._context),
            on_change=changed,
            at_once=at_once,
        )

    def _serving_keeper(self) -> CertificateKeeper:
        """A node that runs alone shows what the store has, and asks nobody."""
        node = self._context.bus.follow(NODE_OBJECT, lambda _: keeper.wake())

        def template() -> Template | None:
            found = node.state.get("node")
            addresses = ((found.node.get("status") or {}).get("addresses") or ()) if found is not None else ()
            dns_only_allowed = self._config.feature_gates.get(_DNS_ONLY, False)
            return serving_template(self._config.node_name, addresses, dns_only_allowed=dns_only_allowed)

        requester = OrdinaryRequester(Path(self._config.run_dir))
        keeper = CertificateKeeper(
            self._context,
            "serving certificate",
            serving_store(self._config),
            template,
            requester,
            on_change=self._announce,
        )
        return keeper

    def _announce(self, pair: StoredPair, found: InspectedPair) -> None:
        state = CertificateState(
            certificate_file=str(pair.files.certificate),
            private_key_file=str(pair.files.key),
            not_after=rfc3339(found.facts.not_after),
            self_signed=False,
        )
        self._certificates.put("serving", state, "in the certificate store")
