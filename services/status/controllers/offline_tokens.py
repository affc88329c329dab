"""Keeps the tokens that the API server has issued for pods in an encrypted record, and answers with them for pods that
run from the record of sources (`offlinePods`).

A kept token may have expired: it is given nevertheless, so that its pod starts, because no API server accepts it any
more. Its lifetime in the answer is short, so that it is requested again soon, and replaced once the API server answers.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, to_builtins

from bus.interface import Change, Put
from bus.messages.sources import DesiredPod
from bus.messages.status import IssuedToken, RequestToken
from bus.messages.streams import PODS_DESIRED
from services.frame.launch import Context
from shared.config.effective import OfflinePods
from shared.model.fields import dictionary, text
from shared.offline.answers import live_or_kept
from shared.offline.record import RECORD_ERRORS, OfflineRecord
from shared.process.crash import crash_point
from shared.text.json_text import json_bytes
from shared.time.timestamps import parse_rfc3339

log = logging.getLogger(__name__)

NAME, VERSION = "tokens", 1
SAVE_AFTER_SECONDS = 5.0  # after a token was issued, for all that are issued meanwhile
LIFETIME_SECONDS = 37  # of a kept token, as volume sees it: it requests another one after 80 % of it
MAX_TOKEN_BYTES = 64 << 10


class KeptToken(Struct, frozen=True):
    """A token, for this request."""

    namespace: str
    service_account: str
    spec: dict[str, Any]
    token: str
    expiration: str

    def __repr__(self) -> str:
        return f"KeptToken({self.namespace}/{self.service_account}, …)"

    @property
    def pod_uid(self) -> str:
        """Return the UID of the pod that it is bound to."""
        return text(dictionary(self.spec.get("boundObjectRef")).get("uid"))


class _Record(Struct, frozen=True):
    version: int
    tokens: list[KeptToken]


class OfflineTokens:
    """The tokens. `issue` requests one from the API server; `is_refused` returns whether it refuses the node."""

    def __init__(
        self,
        context: Context,
        settings: OfflinePods,
        issue: Callable[[RequestToken], Coroutine[Any, Any, IssuedToken]],
    ) -> None:
        self._bus, self._clock, self._settings, self._issue = context.bus, context.clock, settings, issue
        self.is_refused: Callable[[], bool] = lambda: False
        self._record = OfflineRecord(context.config, NAME)
        self._reported: str | None = None  # the trouble that was logged last
        self._tokens: dict[bytes, KeptToken] = {}  # by request; those issued last come last
        self._in_use, self._is_due, self._published = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._desired = context.bus.follow(PODS_DESIRED, self._on_desired)

    async def answer(self, request: RequestToken) -> IssuedToken:
        """Answer RequestToken, for a pod that runs from the record with its kept token, if there is one. A request that
        fails before sources has published the pod waits for that."""

        def is_open(issued: IssuedToken) -> bool:
            kept = self._tokens.get(_key(request)) if issued.error and not issued.not_found else None
            return kept is not None and kept.pod_uid not in self._desired.state

        live, kept = partial(self._issue, request), partial(self._kept, request)
        issued, is_live = await live_or_kept(live, kept, self._in_use, is_open, self._published)
        if is_live and issued.token and len(issued.token) <= MAX_TOKEN_BYTES:
            space, account, spec = request.namespace, request.service_account, request.spec
            self._tokens.pop(_key(request), None)
            self._tokens[_key(request)] = KeptToken(space, account, spec, issued.token, issued.expiration)
            self._is_due.set()
        return issued

    async def run(self) -> None:
        """Read the record, and save it after changes, until cancelled."""
        await self._record.wait_for_credentials()
        await self._load()
        while True:
            await self._is_due.wait()
            await asyncio.sleep(SAVE_AFTER_SECONDS)
            self._is_due.clear()
            await self._save()

    def _kept(self, request: RequestToken) -> IssuedToken | None:
        kept = self._tokens.get(_key(request))
        pod = None if kept is None else self._desired.state.get(kept.pod_uid)
        if kept is None or pod is None or not pod.recorded or self.is_refused():
            return None
        if self._clock.wall() - (parse_rfc3339(pod.recorded) or 0.0) > self._settings.max_age:
            return None
        return IssuedToken(token=kept.token, expiration=kept.expiration, lifetime=LIFETIME_SECONDS)

    def _on_desired(self, change: Change[DesiredPod]) -> None:
        if isinstance(change, Put):
            if change.value.recorded:
                self._in_use.set()
                self._in_use.clear()  # who waits has been woken; who comes later looks first
            self._published.set()
            self._published.clear()
            return
        if any(not self._is_needed(token) for token in self._tokens.values()):
            self._is_due.set()

    def _is_needed(self, token: KeptToken) -> bool:
        return not self._desired.complete or self._desired.stale or token.pod_uid in self._desired.state

    async def _load(self) -> None:
        try:
            content = await asyncio.to_thread(self._record.load, self._clock.wall())
            found = None if content is None else msgspec.convert(content, _Record)
        except (*RECORD_ERRORS, msgspec.ValidationError) as error:
            self._report(f"the record of tokens is not used: {error}")
            return
        if found is not None and found.version == VERSION:
            self._tokens = {_key(token): token for token in found.tokens} | self._tokens

    async def _save(self) -> None:
        self._tokens = {key: token for key, token in self._tokens.items() if self._is_needed(token)}
        size, kept = 0, list[KeptToken]()
        for token in reversed(self._tokens.values()):
            size += len(json_bytes(token))
            if size > self._settings.max_bytes:
                break
            kept.insert(0, token)
        line: str | None = None
        if len(kept) < len(self._tokens):
            line = f"{len(self._tokens) - len(kept)} tokens are not in the record, which is full"
            line += " (raise offlinePods.maxBytes)"
        try:
            data = to_builtins(_Record(VERSION, kept))
            line = await asyncio.to_thread(self._record.save, data, self._clock.wall()) or line
        except RECORD_ERRORS as error:
            line = f"the record of tokens cannot be saved: {error}"
            self._is_due.set()
        self._report(line)
        crash_point("status.offline.saved")

    def _report(self, line: str | None) -> None:
        if line is not None and line != self._reported:
            log.warning("%s", line)
        self._reported = line
        self._bus.trouble("record of tokens", line)


def _key(request: RequestToken | KeptToken) -> bytes:
    return msgspec.json.encode([request.namespace, request.service_account, request.spec], order="sorted")
