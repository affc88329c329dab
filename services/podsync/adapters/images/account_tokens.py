"""Reads service accounts from sources and their tokens from status, for credential plugins (pods.md 7.5).

A token is kept in memory for four fifths of its lifetime. Decides nothing about pulls.
"""

from dataclasses import dataclass, field
from typing import Any

from services.podsync.adapters.cluster_reads import ClusterReads
from services.podsync.core.images.credential_plugin import AccountIdentity, wanted_annotations
from services.podsync.core.images.keyring import AccountSource
from shared.config.effective import CredentialProvider
from shared.model.objects import Object
from shared.time.clock import Clock
from shared.time.timestamps import parse_rfc3339

_LIFETIME_USED = 0.8


class NotApplicableError(Exception):
    """The plugin is not run for this pod. `expected`: the cluster's annotations exclude the pod, which is no fault."""

    def __init__(self, why: str, *, expected: bool = False) -> None:
        self.expected = expected
        super().__init__(why)


@dataclass
class AccountTokens:
    """Keeps tokens of service accounts in memory; `clock` decides when one is renewed."""

    clock: Clock
    _kept: dict[tuple[str, ...], tuple[str, float]] = field(default_factory=dict, repr=False)

    def forget(self) -> None:
        """Forget all tokens."""
        self._kept = {}

    async def identity(
        self, provider: CredentialProvider, pod: Object, cluster: ClusterReads
    ) -> AccountIdentity | None:
        """Return the pod's identity for this plugin; None where it has no service account. Raises
        NotApplicableError."""
        metadata, name = pod["metadata"], str((pod.get("spec") or {}).get("serviceAccountName") or "")
        if not name:
            return None
        space = str(metadata["namespace"])
        found = await cluster.service_account(space, name)
        if found.object is None:
            raise NotApplicableError(f"service account {space}/{name} cannot be read: {found.error}")
        about: dict[str, Any] = found.object.get("metadata") or {}
        annotations = wanted_annotations(provider, about.get("annotations") or {})
        if annotations is None:
            why = f"service account {space}/{name} lacks an annotation that the plugin requires"
            raise NotApplicableError(why, expected=True)
        account = AccountSource(space, name, str(about.get("uid") or ""))
        token = await self._token(provider.token_audience, account, metadata, cluster)
        return AccountIdentity(account, annotations, token)

    async def _token(self, audience: str, account: AccountSource, pod: dict[str, Any], cluster: ClusterReads) -> str:
        key = audience, account.namespace, account.name, account.uid, str(pod["uid"])
        now = self.clock.monotonic()
        self._kept = {old: kept for old, kept in self._kept.items() if kept[1] > now}
        if key in self._kept:
            return self._kept[key][0]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": str(pod["name"]), "uid": str(pod["uid"])}
        issued = await cluster.token(
            account.namespace, account.name, {"audiences": [audience], "boundObjectRef": bound}
        )
        if not issued.token:
            raise NotApplicableError(f"no token for service account {account.namespace}/{account.name}: {issued.error}")
        lifetime = (parse_rfc3339(issued.expiration) or 0.0) - self.clock.wall()
        self._kept[key] = issued.token, now + lifetime * _LIFETIME_USED
        return issued.token
