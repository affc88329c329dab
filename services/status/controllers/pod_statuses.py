"""Writes pod statuses to the API server, and deletes the API objects of finished pods.

It keeps nothing that the streams and the API server do not contain: after a restart everything is compared again.
"""

import logging

from bus.messages.podsync import PodStatus
from services.status.controllers.pod_streams import PodStreams
from services.status.core.pod_status_baseline import Baseline, kept_of, metadata, newest, version
from services.status.core.pod_status_deletion import delete_now, may_be_deleted
from services.status.core.pod_status_merge import is_terminal, status_patch
from shared.kube import paths
from shared.kube.interface import (
    READ_TIMEOUT_SECONDS,
    WRITE_TIMEOUT_SECONDS,
    ApiClient,
    ApiError,
    ApiStatusError,
    ApiUnreachableError,
)
from shared.model.objects import Object, name, namespace, uid
from shared.time.clock import Clock
from shared.time.timestamps import rfc3339

log = logging.getLogger(__name__)

_MAX_TRIES = 3  # of one write, if each time the object has changed meanwhile


class PodStatuses:
    """Brings pod statuses up to date, for each UID one at a time (`controllers.request_workers`). Keys are podsync's
    UIDs, never those of mirror pods."""

    def __init__(self, client: ApiClient, clock: Clock, followed: PodStreams) -> None:
        self._client, self._clock, self._followed = client, clock, followed
        self._answers: dict[str, Object] = {}  # answers of the API server that the watch has not shown yet
        self._doubtful: set[str] = set()  # API UIDs whose last request had no answer, so that its effect is unknown
        self._without_effect: dict[str, Object] = {}  # API UID -> the part of a patch that the API server did not store
        # API UID -> versions of the API object and of podsync's status between which nothing was left to write
        self._settled: dict[str, tuple[str, tuple[int, int]]] = {}
        self._deleted: set[str] = set()  # API UID of objects whose deletion was accepted
        self._nothing_to_do: dict[str, tuple[object, ...]] = {}  # UID -> the inputs with which nothing was to be done

    def keys(self) -> set[str]:
        """Return the UID of every pod for which there may be something to do."""
        return {*self._followed.statuses.state, *self._followed.desired.state}

    async def bring_up_to_date(self, pod_uid: str) -> bool:
        """Write the newest status where the API server has another one, then delete the object where that is due.

        Returns whether a request was sent; raises ApiError.
        """
        known, before = self._known(pod_uid), self._nothing_to_do.pop(pod_uid, None)
        if before is not None and all(now is then for now, then in zip(known, before, strict=True)):
            self._nothing_to_do[pod_uid] = known
            return False
        asked = await self._compare(pod_uid)
        if not asked and (known[0] is not None or known[1] is not None):
            self._nothing_to_do[pod_uid] = self._known(pod_uid)  # the comparison may have forgotten answers
        return asked

    async def _compare(self, pod_uid: str) -> bool:
        asked = False
        try:
            status = self._followed.statuses.state.get(pod_uid)
            watched, asking_is_of_use = self._watched(pod_uid, status)
            if watched is None and not asking_is_of_use:
                return asked  # the pod is gone, or it is a static pod without a mirror pod
            target = watched or _unseen(pod_uid, status)
            baseline = self._baseline(pod_uid, target, watched)
            if status is not None:
                pod, asked = await self._write(pod_uid, status, target, baseline)
            else:
                pod = baseline.pod
            if pod is not None:
                asked = await self._delete(pod_uid, pod) or asked
            return asked
        finally:
            self._let_go(pod_uid)

    def _known(self, pod_uid: str) -> tuple[object, ...]:
        """Return all inputs of a comparison; identical objects lead to the same result."""
        followed = self._followed
        status = followed.statuses.state.get(pod_uid)
        mirror = followed.mirror_of(status) if status is not None else None
        api_uid = mirror.uid if mirror is not None else pod_uid
        return (
            status,
            followed.desired.state.get(pod_uid),
            followed.api_statuses.state.get(pod_uid),
            followed.admitted.state.get(pod_uid),
            mirror,
            self._answers.get(api_uid),
            api_uid in self._doubtful,
            followed.desired_is_all,
            followed.admitted_is_all,
            followed.mirrors_are_all,
        )

    def _watched(self, pod_uid: str, status: PodStatus | None) -> tuple[Object | None, bool]:
        """Return the API object as sources publishes it, and whether the API server may have a newer one."""
        if self._followed.is_static(pod_uid):
            mirror = self._followed.mirror_of(status) if status is not None else None
            return (mirror.pod if mirror is not None else None), False
        pod = self._followed.api_pod(pod_uid)
        if pod is not None:
            return pod, True
        return None, status is not None and not self._followed.desired_is_all

    def _baseline(self, pod_uid: str, target: Object, watched: Object | None) -> Baseline:
        static = self._followed.is_static(pod_uid)
        in_step = self._followed.mirrors_are_all if static else self._followed.desired_is_all
        baseline = newest(watched, self._answers.get(uid(target)), in_step=in_step)
        if uid(target) in self._doubtful:
            return Baseline(baseline.pod, certain=False)
        return baseline

    async def _write(
        self, pod_uid: str, status: PodStatus, target: Object, baseline: Baseline
    ) -> tuple[Object | None, bool]:
        """Write the status if it differs. Return the object afterwards, None = there is none, and whether a request was
        sent."""
        asked = False
        ask_first = baseline.pod is None or uid(target) in self._doubtful
        for attempt in range(_MAX_TRIES):
            if ask_first:
                asked = True
                found = await self._get(target)
                if found is None:
                    return None, asked
                baseline, ask_first = Baseline(found, certain=True), False
            pod = baseline.pod
            assert pod is not None
            change = self._change(target, pod, status)
            if change is None:
                break
            if not baseline.certain:
                ask_first = True
                continue
            asked = True
            try:
                pod = await self._patch(target, pod, change)
            except ApiStatusError as error:
                if error.not_found:
                    return None, asked
                if error.code not in (409, 422) or (error.code == 422 and attempt) or attempt == _MAX_TRIES - 1:
                    raise
                ask_first = True
                continue
            left = status_patch(pod, status.status, now=rfc3339(self._clock.wall()))
            if left is None:
                self._without_effect.pop(uid(target), None)
            else:
                self._without_effect[uid(target)] = left
            self._settled[uid(target)] = _versions(pod, status)
            break
        else:
            raise ApiError(f"the pod changed under {_MAX_TRIES} attempts to write its status")
        return pod, asked

    def _change(self, target: Object, pod: Object, status: PodStatus) -> Object | None:
        """Return the `status` of the patch to be sent, None = none. The watch shows each of our writes once more, so
        versions with which nothing was left to write are not compared again."""
        versions = _versions(pod, status)
        if versions[0] and self._settled.get(uid(target)) == versions:
            return None
        change = status_patch(pod, status.status, now=rfc3339(self._clock.wall()))
        if change is not None and change != self._without_effect.get(uid(target)):
            return change
        self._settled[uid(target)] = versions
        return None

    async def _patch(self, target: Object, pod: Object, change: Object) -> Object:
        """Send the patch. A phase that is not terminal is written only over the version that it was compared with, so
        that it never replaces a terminal one."""
        precondition = {"uid": uid(target)}
        if change.get("phase") and not is_terminal(change) and (seen := metadata(pod).get("resourceVersion")):
            precondition["resourceVersion"] = str(seen)
        path = paths.pod_status(namespace(target), name(target))
        try:
            answer = await self._client.patch(
                path, {"metadata": precondition, "status": change}, timeout=WRITE_TIMEOUT_SECONDS
            )
        except ApiUnreachableError:
            self._doubtful.add(uid(target))
            raise
        return self._keep_answer(target, answer)

    async def _get(self, target: Object) -> Object | None:
        """Return the object from the API server; None when there is none, or another one has its name."""
        try:
            answer = await self._client.get(paths.pod(namespace(target), name(target)), timeout=READ_TIMEOUT_SECONDS)
        except ApiStatusError as error:
            if error.not_found or error.unrelated:
                return None
            raise
        self._doubtful.discard(uid(target))
        return self._keep_answer(target, answer) if uid(answer) == uid(target) else None

    def _keep_answer(self, target: Object, answer: Object) -> Object:
        kept = kept_of(answer)
        self._answers[uid(target)] = kept
        return kept

    async def _delete(self, pod_uid: str, pod: Object) -> bool:
        """Delete the API object if that is due; return whether a request was sent. It is safe to repeat, because the
        precondition names this very object. An object that finalizers keep is deleted only once."""
        if self._followed.source(pod_uid) != "api" or uid(pod) != pod_uid or pod_uid in self._deleted:
            return False
        admitted = self._followed.admitted.state.get(pod_uid)
        if not may_be_deleted(pod, admitted, admitted_is_all=self._followed.admitted_is_all):
            return False
        try:
            await self._client.delete(
                paths.pod(namespace(pod), name(pod)), delete_now(pod_uid), timeout=WRITE_TIMEOUT_SECONDS
            )
        except ApiStatusError as error:
            if not (error.not_found or error.conflict):
                raise
        self._deleted.add(pod_uid)
        log.info("the API object of pod %s_%s(%s) is deleted", name(pod), namespace(pod), pod_uid)
        return True

    def _let_go(self, pod_uid: str) -> None:
        """Forget the answer if the watch shows the same version or a newer one. If the pod is gone, forget everything
        about pods that are gone."""
        followed = self._followed
        status = followed.statuses.state.get(pod_uid)
        if status is None and pod_uid not in followed.desired.state:
            self.forget_gone()
            return
        mirror = followed.mirror_of(status) if status is not None else None
        shown = mirror.pod if mirror is not None else followed.api_pod(pod_uid)
        answered = self._answers.get(mirror.uid if mirror is not None else pod_uid)
        if answered is not None and _caught_up(shown, answered):
            del self._answers[mirror.uid if mirror is not None else pod_uid]

    def forget_gone(self) -> None:
        """Forget everything about pods that are gone."""
        followed = self._followed
        alive = {*followed.desired.state, *followed.statuses.state, *(m.uid for m in followed.mirrors.state.values())}
        for known in (self._answers, self._without_effect, self._nothing_to_do, self._settled):
            for api_uid in known.keys() - alive:
                del known[api_uid]
        self._doubtful &= alive
        self._deleted &= alive


def _caught_up(shown: Object | None, answered: Object) -> bool:
    newer, older = version(shown) if shown is not None else None, version(answered)
    return newer is not None and older is not None and newer >= older


def _versions(pod: Object, status: PodStatus) -> tuple[str, tuple[int, int]]:
    return str(metadata(pod).get("resourceVersion") or ""), status.version


def _unseen(pod_uid: str, status: PodStatus | None) -> Object:
    assert status is not None
    return {"metadata": {"name": status.name, "namespace": status.namespace, "uid": pod_uid}}
