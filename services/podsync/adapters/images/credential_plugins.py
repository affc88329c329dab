"""Runs credential plugins for registry credentials, and caches their answers (pods.md 7.5).
The failure of a plugin is logged and the pull goes on without it. Its output is in no log, for it may be a secret. One
run serves all callers that make the same request at the same time.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from services.podsync.adapters.cluster_reads import ClusterReads
from services.podsync.adapters.images.account_tokens import AccountTokens, NotApplicableError
from services.podsync.core.images.credential_cache import CredentialCache
from services.podsync.core.images.credential_plugin import (
    AccountIdentity,
    PluginAnswer,
    PluginAnswerError,
    is_for,
    read_answer,
    request_document,
)
from services.podsync.core.images.docker_config import DockerConfig
from services.podsync.core.images.keyring import SourcedConfig
from shared.config.effective import CredentialProvider
from shared.model.objects import Object
from shared.process.child_process import OutputTooLargeError, run_child
from shared.time.clock import Clock

log = logging.getLogger(__name__)

MAX_RUN_SECONDS = 60.0
MAX_OUTPUT_BYTES = 1 << 20


class PluginFailedError(Exception):
    """The plugin gave no answer; the text has the reason, and nothing of the plugin's output."""


class CredentialPlugins:
    """Runs the configured plugins. `time_limit`: seconds a run may take."""

    def __init__(
        self,
        providers: Iterable[CredentialProvider],
        bin_dir: str,
        clock: Clock,
        *,
        time_limit: float = MAX_RUN_SECONDS,
    ) -> None:
        self._providers = tuple(providers)
        self._bin_dir = Path(bin_dir)
        self._clock = clock
        self._limit = time_limit
        self._caches = {provider.name: CredentialCache() for provider in self._providers}
        self._tokens = AccountTokens(clock)
        self._running: dict[tuple[str, str, str], asyncio.Task[PluginAnswer]] = {}

    def forget(self) -> None:
        """Forget all answers and tokens: they may have ended while the machine was suspended."""
        self._caches = {provider.name: CredentialCache() for provider in self._providers}
        self._tokens.forget()

    async def entries(self, image: str, pod: Object, cluster: ClusterReads) -> list[SourcedConfig]:
        """Return what the plugins have for the image, a full name without tag, and this pod. Never raises."""
        runs = [self._ask(provider, image, pod, cluster) for provider in self._providers if is_for(provider, image)]
        return [entries for entries in await asyncio.gather(*runs) if entries is not None]

    async def _ask(
        self, provider: CredentialProvider, image: str, pod: Object, cluster: ClusterReads
    ) -> SourcedConfig | None:
        try:
            identity: AccountIdentity | None = None
            if provider.token_audience:
                identity = await self._tokens.identity(provider, pod, cluster)
                if identity is None and provider.requires_account:
                    return None
            config = await self._config(provider, image, identity)
            return SourcedConfig(config, identity.account if identity is not None else None)
        except (PluginFailedError, PluginAnswerError) as error:
            log.warning("credential plugin %s is of no help for %s: %s", provider.name, image, error)
        except NotApplicableError as error:
            level = logging.DEBUG if error.expected else logging.WARNING
            log.log(level, "credential plugin %s is not asked for %s: %s", provider.name, image, error)
        return None

    async def _config(self, provider: CredentialProvider, image: str, identity: AccountIdentity | None) -> DockerConfig:
        cache = self._caches[provider.name]
        scope = identity.scope(with_token=provider.token_cache_type == "Token") if identity else ""
        kept = cache.find(image, scope, self._clock.monotonic())
        if kept is not None:
            return kept
        request = provider.name, image, identity.scope(with_token=True) if identity else ""

        async def run() -> PluginAnswer:
            answer = await self._run(provider, image, identity)
            cache.add(image, scope, answer, provider.default_cache_seconds, self._clock.monotonic())
            return answer

        return (await self._share(request, run)).config

    async def _share(
        self, request: tuple[str, str, str], run: Callable[[], Coroutine[Any, Any, PluginAnswer]]
    ) -> PluginAnswer:
        """Return the answer of one run for all callers of this request; it goes on when a caller is cancelled."""
        task = self._running.get(request)
        if task is None:
            task = asyncio.get_running_loop().create_task(run(), name=f"plugin {request[0]}")
            self._running[request] = task
            task.add_done_callback(partial(self._forget, request))
        return await asyncio.shield(task)

    def _forget(self, request: tuple[str, str, str], task: asyncio.Task[PluginAnswer]) -> None:
        del self._running[request]
        if not task.cancelled():
            task.exception()  # the waiting callers get it; read it here, or asyncio logs it where none waits

    async def _run(self, provider: CredentialProvider, image: str, identity: AccountIdentity | None) -> PluginAnswer:
        try:
            output, exit_code = await run_child(
                [str(self._bin_dir / provider.name), *provider.args],
                request_document(provider, image, identity),
                {**os.environ, **dict(provider.env)},
                time_limit=self._limit,
                largest_output=MAX_OUTPUT_BYTES,
            )
        except TimeoutError:
            raise PluginFailedError(f"it took longer than {self._limit:g} s") from None
        except OutputTooLargeError:
            raise PluginFailedError(f"it wrote more than {MAX_OUTPUT_BYTES} bytes") from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "its arguments or environment cannot be passed on"
            raise PluginFailedError(f"it cannot be executed: {why}") from None
        if exit_code:
            how = f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}"
            raise PluginFailedError(f"it ended with {how}")
        return read_answer(provider, output, identity)
