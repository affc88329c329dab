"""Inspects and pulls images for pods, and checks whether a pod may use one (pods.md 7.3).
A bounded number of pulls, or one, runs on the node at a time. The core decides when a pull is tried and may
begin, and what the pod's status shows of it.

containerd only logs that it cannot parse the `hosts.toml` of a registry, and pulls as if there were none. The error is
in the event of the failed pull, so that the operator learns that no mirror was asked.
"""

import asyncio
import tomllib
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from msgspec import Struct

from services.podsync.adapters.cluster_reads import ClusterReads
from services.podsync.adapters.images.image_access import ImageAccess
from services.podsync.adapters.images.pull_credentials import PullCredentials, PullSecretError, PullSecrets, Warnings
from services.podsync.core.images.image_reference import with_default_tag
from services.podsync.core.images.image_repository import hosts_directories, registry_of, repository
from services.podsync.core.images.keyring import TrackedCredential
from services.podsync.core.images.pull_rate import full_rate
from shared.config.effective import EffectiveConfig
from shared.cri.interface import ImageStatus, Message, Runtime, RuntimeCallError
from shared.model.objects import Object
from shared.time.clock import Clock

UNANSWERED = frozenset(
    {"Unavailable", "DeadlineExceeded", "Canceled"}
)  # codes of a pull that the runtime may have done nevertheless
_MAX_BYTES = 256 * 1024  # of a hosts.toml


def find_damaged_hosts(config_path: str, image: str) -> str:
    """Return which `hosts.toml` containerd does not use for the image, and its syntax error; "" where there is none.
    `config_path`: the directory of all such files, "" = none."""
    if not config_path:
        return ""
    for name in hosts_directories(registry_of(repository(image))):
        directory = Path(config_path) / name
        if directory.exists():  # containerd looks no further
            return _find_damage(directory / "hosts.toml")
    return ""


def _find_damage(file: Path) -> str:
    with suppress(OSError), file.open("rb") as opened:
        try:
            tomllib.loads(opened.read(_MAX_BYTES).decode())
        except ValueError as error:  # TOMLDecodeError, or bytes that are no UTF-8
            return f"containerd does not use {file}: {error}"
    return ""


class ImageCallError(RuntimeCallError):
    """The pod gets no image. `reason` is the waiting reason where it is not the usual one; `warnings` are Warning
    events of the pod about its pull secrets."""

    def __init__(self, code: str, description: str, reason: str = "", warnings: Warnings = ()) -> None:
        super().__init__("PullImage", code, description)
        self.reason, self.warnings = reason, warnings


class InspectedImage(Struct, frozen=True):
    """Has an image as the runtime reports it. `image` None = it is absent. `must_pull`: it is present, but only a pull
    can show that the pod may use it."""

    image: ImageStatus | None
    must_pull: bool = False
    warnings: Warnings = ()


class PulledImage(Struct, frozen=True):
    """Has the outcome of a pull. `took`: seconds of the pull itself, `waited`: seconds with the wait for a turn."""

    image: ImageStatus | None
    took: float
    waited: float
    warnings: Warnings = ()


class ImagePulls:
    """Inspects and pulls images, with the credentials and the records of pulls of this node."""

    def __init__(self, runtime: Runtime, clock: Clock, config: EffectiveConfig) -> None:
        self._runtime, self._clock = runtime, clock
        self._credentials = PullCredentials(config, clock)
        self.access = ImageAccess(runtime, config, clock)
        parallel = 1 if config.serialize_image_pulls else config.max_parallel_image_pulls or 1_000
        self._turns = asyncio.Semaphore(parallel)
        self._rate = full_rate(config.registry_pull_qps, config.registry_burst, clock.monotonic())
        embedded = config.embedded_containerd
        self._registry_config_path = embedded.registry_config_path if embedded is not None else ""

    def forget_credentials(self) -> None:
        """Have plugins asked again for what they have answered."""
        self._credentials.forget()

    async def inspect(
        self, pod: Object, image: str, policy: str, cluster: ClusterReads, *, backed_off: bool = False
    ) -> InspectedImage:
        """Look for the image, whose valid name may be without a tag. `backed_off`: it will not be pulled now, so an
        absent one needs no pull secrets. Raises RuntimeCallError, and its subclass ImageCallError with the warnings
        about pull secrets."""
        status = await self._runtime.image_status(with_default_tag(image))
        if status is None and backed_off:
            return InspectedImage(None)
        settled = policy == "Never" if status is None else not self.access.is_kept
        try:
            secrets = await self._credentials.secrets(pod, image, cluster)
        except PullSecretError as error:
            if not settled:
                raise ImageCallError("Unknown", str(error), str(error)) from None
            secrets = PullSecrets()
        if status is None or settled:
            return InspectedImage(status, warnings=secrets.warnings)

        async def credentials() -> tuple[TrackedCredential, ...]:
            return await self._credentials.find(image, secrets, pod, cluster)

        allowed = await self.access.may_use(image, status.id, credentials)
        return InspectedImage(status, must_pull=not allowed, warnings=secrets.warnings)

    async def pull(
        self,
        pod: Object,
        image: str,
        policy: str,
        sandbox_config: Message,
        cluster: ClusterReads,
        watched: AbstractContextManager[None] | None = None,
    ) -> PulledImage:
        """Pull the image with each credential in turn until one works; `watched` is entered meanwhile. Raises
        RuntimeCallError, "pull QPS exceeded" included: that bucket never waits."""
        requested = self._clock.monotonic()
        warnings: Warnings = ()
        try:
            secrets = await self._credentials.secrets(pod, image, cluster)
            warnings = secrets.warnings if policy == "Always" else ()  # with other policies the inspection reports them
            credentials = await self._credentials.find(image, secrets, pod, cluster)
            await self.access.recover()
        except PullSecretError as error:
            raise ImageCallError("Unknown", str(error), str(error), warnings) from None
        spec: Message = {"image": with_default_tag(image)}
        if annotations := (pod.get("metadata") or {}).get("annotations"):
            spec["annotations"] = dict(annotations)
        errors: list[RuntimeCallError] = []
        began = 0.0
        try:
            await self.access.begin(image)
            async with self._turns:
                began = self._clock.monotonic()
                with watched or nullcontext():
                    pulled = await self._try_each(spec, sandbox_config, credentials, errors)
                ended = self._clock.monotonic()
        except OSError as error:
            text = f"failed to record image pull intent: {error}"
            raise ImageCallError("Unknown", text, text, warnings) from error
        except asyncio.CancelledError:
            await self.access.failed(image, unanswered=began > 0)
            raise
        if pulled is None:
            await self.access.failed(image, unanswered=any(error.code in UNANSWERED for error in errors))
            damage = await asyncio.to_thread(find_damaged_hosts, self._registry_config_path, image)
            raise _combined(errors, warnings, damage)
        status = await self._look_after(image, *pulled)
        return PulledImage(status, ended - began, ended - requested, warnings)

    async def _try_each(
        self,
        spec: Message,
        sandbox_config: Message,
        credentials: tuple[TrackedCredential, ...],
        errors: list[RuntimeCallError],
    ) -> tuple[str, TrackedCredential | None] | None:
        """Pull with each credential in turn, or anonymously where there is none. Return the runtime's reference to the
        image and the credential that worked; None where none worked. Errors are added to `errors`. All tries count as
        one pull for the registry's rate."""
        rate = self._rate.take(self._clock.monotonic())
        if rate is None:
            errors.append(RuntimeCallError("PullImage", "Unknown", "pull QPS exceeded"))
            return None
        self._rate = rate
        for credential in credentials or (None,):
            try:
                auth = credential.auth if credential is not None else None
                return await self._runtime.pull_image(spec, sandbox_config, auth or None), credential
            except RuntimeCallError as error:
                errors.append(error)
        return None

    async def _look_after(self, image: str, image_ref: str, credential: TrackedCredential | None) -> ImageStatus | None:
        """Record the pull under each name that the runtime has for the image: two answers of it may name it
        differently."""
        references = {image_ref}
        try:
            status = await self._runtime.image_status(with_default_tag(image))
            if status is not None:
                references.add(status.id)
            return status
        finally:
            await self.access.succeeded(image, references, credential)


def _combined(errors: list[RuntimeCallError], warnings: Warnings, damage: str) -> ImageCallError:
    """Return one error for the errors of several credentials: each text once, in brackets if there are several.
    `damage`: what is wrong with the registry's hosts.toml, "" = nothing."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    code, text = (errors[0].code, errors[0].description) if len(texts) == 1 else ("Unknown", f"[{', '.join(texts)}]")
    return ImageCallError(code, f"{text} ({damage})" if damage else text, warnings=warnings)
