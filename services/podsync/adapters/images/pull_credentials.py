"""Gathers the credentials that are tried for one pod's image: pull secrets, the node's own, plugins, in this order.

Their values go to the runtime and nowhere else. Which of them match, and in which order, the keyring decides.
"""

import asyncio
import base64
import binascii
from dataclasses import dataclass, field
from pathlib import Path

from services.podsync.adapters.cluster_reads import ClusterReads
from services.podsync.adapters.images.credential_plugins import CredentialPlugins
from services.podsync.adapters.images.node_docker_config import NodeDockerConfig
from services.podsync.core.images.docker_config import DockerConfigError, read_config_json, read_dockercfg
from services.podsync.core.images.image_repository import repository
from services.podsync.core.images.keyring import SecretSource, SourcedConfig, TrackedCredential, lookup, narrowed
from shared.config.effective import EffectiveConfig
from shared.model.objects import Object
from shared.time.clock import Clock

Warnings = tuple[tuple[str, str], ...]  # reason and message of Warning events of the pod
_KINDS = {  # type of a Secret -> its key, and how that is read
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson", read_config_json),
    "kubernetes.io/dockercfg": (".dockercfg", read_dockercfg),
}

MOST_SECRETS = 100  # of one pod
_AT_ONCE = 4  # Secrets held in memory; of each only what the image needs is kept
_LARGEST = 2 << 20  # characters of base64; the API server takes 1 MiB of bytes


class PullSecretError(Exception):
    """A pull secret of the pod cannot be read as its type requires; names the Secret, shows nothing of it."""


@dataclass(frozen=True)
class PullSecrets:
    """The content of the pod's imagePullSecrets."""

    entries: tuple[SourcedConfig, ...] = field(default=(), repr=False)
    warnings: Warnings = ()


class PullCredentials:
    """The node's sources of credentials."""

    def __init__(self, config: EffectiveConfig, clock: Clock) -> None:
        self._node = NodeDockerConfig(Path(config.root_dir), clock)
        self._plugins = CredentialPlugins(config.credential_providers, config.credential_provider_bin_dir, clock)

    async def secrets(self, pod: Object, image: str, cluster: ClusterReads) -> PullSecrets:
        """What every pull secret of the pod has for the image. One that cannot be had is a warning, and the pull goes
        on. Raises PullSecretError."""
        references = (pod.get("spec") or {}).get("imagePullSecrets") or ()
        names = list(dict.fromkeys(str(one["name"]) for one in references if (one or {}).get("name")))
        if len(names) > MOST_SECRETS:
            raise PullSecretError(f"spec.imagePullSecrets has {len(names)} names, at most {MOST_SECRETS} are read")
        space, name, turns = str(pod["metadata"]["namespace"]), repository(image), asyncio.Semaphore(_AT_ONCE)

        async def read(secret: str) -> SourcedConfig | None:
            async with turns:
                found = (await cluster.secret(space, secret)).object
                return await asyncio.to_thread(_entries, found, name) if found is not None else None

        found: list[SourcedConfig | None] = []
        for one in await asyncio.gather(*map(read, names), return_exceptions=True):
            if isinstance(one, BaseException):
                raise one
            found.append(one)
        missing = ", ".join(secret for secret, one in zip(names, found, strict=True) if one is None)
        warning = (
            f"Unable to retrieve some image pull secrets ({missing}); attempting to pull the image may not succeed."
        )
        entries = tuple(one for one in found if one is not None)
        return PullSecrets(entries, (("FailedToRetrieveImagePullSecret", warning),) if missing else ())

    async def find(
        self, image: str, secrets: PullSecrets, pod: Object, cluster: ClusterReads
    ) -> tuple[TrackedCredential, ...]:
        """What is tried for the image, in order; nothing = an anonymous pull. Never raises."""
        name = repository(image)
        own = lookup(secrets.entries, name)
        node = lookup([SourcedConfig(await asyncio.to_thread(self._node.entries))], name)
        return own + node + lookup(await self._plugins.entries(name, pod, cluster), name)


def _entries(secret: Object, image: str) -> SourcedConfig:
    """What the Secret has for the image, a full name without tag. Raises PullSecretError."""
    metadata = secret.get("metadata") or {}
    space, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    source = SecretSource(space, name, str(metadata.get("uid") or ""))
    key, read = _KINDS.get(str(secret.get("type") or ""), ("", read_dockercfg))
    packed = (secret.get("data") or {}).get(key)
    if not packed:
        return SourcedConfig({}, source)
    try:
        if len(packed) > _LARGEST:
            raise DockerConfigError(f"it has more than {_LARGEST} characters")
        return narrowed(SourcedConfig(read(base64.b64decode(packed, validate=True)), source), image)
    except DockerConfigError as error:
        raise PullSecretError(f"pull secret {space}/{name}: {key} is of no use: {error}") from None
    except (binascii.Error, ValueError, TypeError):
        raise PullSecretError(f"pull secret {space}/{name}: {key} is of no use: it is not base64") from None
