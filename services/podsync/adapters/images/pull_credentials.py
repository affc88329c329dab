"""Gathers the credentials that are tried for one pod's image: of pull secrets, of the node, of plugins, in this order.
Their values go to the runtime and nowhere else. The keyring decides which of them match, and in which order.
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

MAX_SECRETS = 100  # of one pod
_MAX_READS = 4  # Secrets that are in memory at the same time; of each only what the image needs is kept
_MAX_CHARACTERS = 2 << 20  # of base64; the API server takes 1 MiB of bytes


class PullSecretError(Exception):
    """A pull secret of the pod cannot be read as its type requires; the text names the Secret, and shows nothing of
    it."""


@dataclass(frozen=True)
class PullSecrets:
    """Has the content of the pod's imagePullSecrets, and Warning events about those that are missing."""

    entries: tuple[SourcedConfig, ...] = field(default=(), repr=False)
    warnings: Warnings = ()


class PullCredentials:
    """Reads the node's sources of credentials."""

    def __init__(self, config: EffectiveConfig, clock: Clock) -> None:
        self._node = NodeDockerConfig(Path(config.root_dir), clock)
        self._plugins = CredentialPlugins(config.credential_providers, config.credential_provider_bin_dir, clock)

    def forget(self) -> None:
        """Forget what plugins have answered."""
        self._plugins.forget()

    async def secrets(self, pod: Object, image: str, cluster: ClusterReads) -> PullSecrets:
        """Return what the pull secrets of the pod have for the image. A missing one causes a warning, and the pull goes
        on. Raises PullSecretError."""
        references = (pod.get("spec") or {}).get("imagePullSecrets") or ()
        names = list(dict.fromkeys(str(ref["name"]) for ref in references if (ref or {}).get("name")))
        if len(names) > MAX_SECRETS:
            raise PullSecretError(f"spec.imagePullSecrets has {len(names)} names, at most {MAX_SECRETS} are read")
        space, repo = str(pod["metadata"]["namespace"]), repository(image)
        turns = asyncio.Semaphore(_MAX_READS)

        async def read(name: str) -> SourcedConfig | None:
            async with turns:
                secret = (await cluster.secret(space, name)).object
                return await asyncio.to_thread(_read_entries, secret, repo) if secret is not None else None

        configs: list[SourcedConfig | None] = []
        for config in await asyncio.gather(*map(read, names), return_exceptions=True):
            if isinstance(config, BaseException):
                raise config
            configs.append(config)
        missing = ", ".join(name for name, config in zip(names, configs, strict=True) if config is None)
        warning = (
            f"Unable to retrieve some image pull secrets ({missing}); attempting to pull the image may not succeed."
        )
        entries = tuple(config for config in configs if config is not None)
        return PullSecrets(entries, (("FailedToRetrieveImagePullSecret", warning),) if missing else ())

    async def find(
        self, image: str, secrets: PullSecrets, pod: Object, cluster: ClusterReads
    ) -> tuple[TrackedCredential, ...]:
        """Return the credentials to try for the image, in order; none = an anonymous pull. Never raises."""
        name = repository(image)
        own = lookup(secrets.entries, name)
        node = lookup([SourcedConfig(await asyncio.to_thread(self._node.entries))], name)
        return own + node + lookup(await self._plugins.entries(name, pod, cluster), name)


def _read_entries(secret: Object, image: str) -> SourcedConfig:
    """Return what the Secret has for the image, a full name without tag. Raises PullSecretError."""
    metadata = secret.get("metadata") or {}
    space, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    source = SecretSource(space, name, str(metadata.get("uid") or ""))
    key, read = _KINDS.get(str(secret.get("type") or ""), ("", read_dockercfg))
    packed = (secret.get("data") or {}).get(key)
    if not packed:
        return SourcedConfig({}, source)
    try:
        if len(packed) > _MAX_CHARACTERS:
            raise DockerConfigError(f"it has more than {_MAX_CHARACTERS} characters")
        return narrowed(SourcedConfig(read(base64.b64decode(packed, validate=True)), source), image)
    except DockerConfigError as error:
        raise PullSecretError(f"pull secret {space}/{name}: {key} is of no use: {error}") from None
    except (binascii.Error, ValueError, TypeError):
        raise PullSecretError(f"pull secret {space}/{name}: {key} is of no use: it is not base64") from None
