"""Reads, merges, saves and publishes the pods of the static pod URL. It needs no other process."""

import asyncio
import hashlib
import logging
from pathlib import Path
from typing import Any

from bus.stream import EventRecorder
from services.sources.adapters.manifest_url import ManifestUrl, ManifestUrlError
from services.sources.controllers.desired_set import DesiredSet, failed_validation
from services.sources.controllers.troubles import Troubles
from services.sources.core.manifest_records import decode_list, encode_list
from services.sources.core.url_source import pods_of, shown_url
from services.sources.core.yaml_document import UnreadableManifestError
from shared.config.effective import EffectiveConfig
from shared.files.checkpoint import Checkpoint
from shared.model import objects
from shared.model.objects import Object
from shared.podspec.pod_source import SEEN
from shared.podspec.static_pod import InvalidPod, static_pod
from shared.process.crash import crash_point
from shared.time.clock import Clock

log = logging.getLogger(__name__)

_KEY = "pods"  # the key of the only record


class UrlPods:
    """The source `http` of pods. The pods of the last good document stay until the URL returns another one."""

    def __init__(
        self, config: EffectiveConfig, clock: Clock, desired: DesiredSet, events: EventRecorder, troubles: Troubles
    ) -> None:
        self._config, self._clock, self._desired = config, clock, desired
        self._events, self._troubles = events, troubles
        self._url, self._shown = config.static_pod_url, f"staticPodURL {shown_url(config.static_pod_url)}"
        self._reader = ManifestUrl(self._url, config.static_pod_url_header)
        place = Path("sources") / "url"
        self._records = Checkpoint(Path(config.root_dir) / place, Path(config.run_dir) / place)
        self._origin = hashlib.sha256(self._url.encode()).hexdigest()  # the URL itself may hold a password
        self._recorded: tuple[Object, ...] | None = None  # as on disk
        self._last: bytes | None = None  # SHA-256 of the body that was read last
        self.busy_since: float | None = None  # CLOCK_MONOTONIC; None while there is nothing to do

    async def run(self) -> None:
        """Publish the pods of the URL, now and each `httpCheckFrequency`."""
        await self._remember()
        while True:
            await self._look()
            await asyncio.sleep(self._config.http_check_frequency)

    async def _remember(self) -> None:
        """Publish the pods that an earlier process published last, because the URL may not answer."""
        try:
            records = await asyncio.to_thread(self._records.load_all)
        except OSError as error:
            self._troubles.set("record of staticPodURL", f"the record of {self._shown} cannot be read: {error}")
            return
        pods = decode_list(records.get(_KEY, {}), self._origin, node_name=self._config.node_name)
        if pods is None:
            return
        for pod in pods:
            self._desired.pods.remember(objects.uid(pod), objects.annotations(pod).get(SEEN, ""))
        self._recorded = pods
        self._desired.publish("http", self._desired.merge("http", pods), complete=True)

    async def _look(self) -> None:
        try:
            content = await self._reader.read()
        except ManifestUrlError as error:
            self._troubles.set("staticPodURL", f"{self._shown}: {error}; the pods known from it stay")
            self._end_of_run_once()
            return
        self._troubles.set("staticPodURL", None)
        digest = hashlib.sha256(content).digest()
        if digest == self._last:
            return
        self._last = digest
        self.busy_since = self._clock.monotonic()
        try:
            pods = await asyncio.to_thread(pods_of, content, self._make_pod)
        except (UnreadableManifestError, InvalidPod) as error:
            self._report(str(error).replace("\n", "; "))
            self._end_of_run_once()
            return
        finally:
            self.busy_since = None
        await self._publish(pods)
        self._troubles.set(
            "document of staticPodURL", None if content else f"{self._shown}: the body is empty: no pods"
        )

    async def _publish(self, pods: tuple[Object, ...]) -> None:
        changes = self._desired.merge("http", pods)
        known = (self._desired.pods.pod(objects.uid(pod), "http") for pod in pods)
        merged = tuple(pod for pod in known if pod is not None)
        line: str | None = None
        if merged != self._recorded:
            try:
                await asyncio.to_thread(self._records.save, _KEY, encode_list(merged, self._origin))
                self._recorded = merged
            except OSError as error:
                line = f"the record of {self._shown} cannot be saved: {error}"
                self._last = None  # it is tried again with the next answer
        if self._records.trouble:
            self._recorded = self._last = None  # it is saved again until that succeeds below the root directory
        self._troubles.set("record of staticPodURL", line or self._records.trouble)
        crash_point("sources.saved")
        self._desired.publish("http", changes, complete=True)

    def _end_of_run_once(self) -> None:
        """Mark the known pods as all pods in a run once, which does not wait for another document."""
        if self._config.run_once:
            self._desired.publish("http", (), complete=True)

    def _make_pod(self, document: Any) -> Object:
        try:
            return static_pod(document, node_name=self._config.node_name, source="http", origin=self._url)
        except InvalidPod:
            raise
        except Exception as error:  # an unexpected document must not end the process
            log.exception("%s: the document could not be checked", self._shown)
            raise InvalidPod(f"invalid pod: it could not be checked: {error!r}") from error

    def _report(self, reason: str) -> None:
        line = f"{self._shown}: {reason}; the pods known from it stay"
        log.error("%s", line)
        self._events.record(failed_validation(line, None))
        self._troubles.set("document of staticPodURL", line, logged=True)
