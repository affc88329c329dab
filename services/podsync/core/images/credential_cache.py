"""Caches the answers of one plugin for as long as they are valid (pods.md 7.5). Times are CLOCK_MONOTONIC seconds."""

from dataclasses import dataclass, field

from services.podsync.core.images.credential_plugin import CACHE_KEYS, PluginAnswer
from services.podsync.core.images.docker_config import DockerConfig
from services.podsync.core.images.image_repository import registry_of

PURGE_SECONDS = 900.0


@dataclass
class CredentialCache:
    """Has the answers of one plugin. `scope` separates the service accounts, "" = none."""

    _answers: dict[tuple[str, str, str], tuple[DockerConfig, float]] = field(default_factory=dict, repr=False)
    _purged: float = 0.0

    def __len__(self) -> int:
        """Return the number of answers that are kept, including expired ones."""
        return len(self._answers)

    def find(self, image: str, scope: str, now: float) -> DockerConfig | None:
        """Return the answer for the image, else for its registry, else for everything; None where none is valid."""
        self._purge(now)
        for kind in CACHE_KEYS:
            config, until = self._answers.get(_key(kind, image, scope), ({}, 0.0))
            if until > now:
                return config
        return None

    def add(self, image: str, scope: str, answer: PluginAnswer, default_seconds: float, now: float) -> None:
        """Keep the answer for the seconds that it names, else for the provider's default; 0 = do not keep it."""
        seconds = default_seconds if answer.seconds is None else answer.seconds
        if seconds > 0:
            self._answers[_key(answer.cache_key, image, scope)] = answer.config, now + seconds

    def _purge(self, now: float) -> None:
        if now - self._purged >= PURGE_SECONDS:
            self._answers = {key: kept for key, kept in self._answers.items() if kept[1] > now}
            self._purged = now


def _key(kind: str, image: str, scope: str) -> tuple[str, str, str]:
    what = {"Image": image, "Registry": registry_of(image)}.get(kind, "")
    return kind, what, scope
