"""Volumes of files; other services are played: content, refreshes, short failures, restarts, no secret in a text."""

import asyncio
import logging
from pathlib import Path

import pytest

from bus.interface import Freshness
from bus.messages.podsync import NodeResources, PodState
from bus.messages.sources import REQUESTED_READ_TIMEOUT_SECONDS
from bus.messages.status import IssuedToken
from bus.messages.volume import MountedVolume, VolumeState
from services.volume.adapters import cluster_content
from services.volume.controllers import reconciliation
from services.volume.core import reconciler
from services.volume.core.files import token_cache
from services.volume.core.operations import operation_backoff
from shared.time.backoff import Backoff
from shared.time.timestamps import rfc3339
from tests.service.volume.cluster import Cluster, without_mounts
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    without_mounts(monkeypatch)
    cluster = Cluster(tmp_path)
    await cluster.start()
    cluster.put("ConfigMap", "ca", "1", **{"ca.crt": "CA"})
    cluster.put("Secret", "s", "1", password="hunter2")
    cluster.admitted.mark_complete()
    return cluster


async def test_the_default_service_account_volume(cluster: Cluster) -> None:
    cluster.admit("u", "access", "key")
    async with cluster.volume():
        await cluster.until_mounted("u", "access")
    expected = {
        name: MountedVolume(
            health=(),
            state=VolumeState.MOUNTED,
            host_path=str(cluster.directory("u", name)),
            read_only=True,
            selinux_relabel=True,
        )
        for name in ("access", "key")
    }
    assert cluster.mounted.state["u"].volumes == expected
    assert cluster.read("u", "access") == {"token": "jwt-1", "ca.crt": "CA", "namespace": "shop"}
    assert cluster.read("u", "key") == {"password": "hunter2"}
    plugins = cluster.root / "pods" / "u" / "plugins" / "kubernetes.io~empty-dir"
    assert sorted(entry.name for entry in plugins.iterdir()) == ["wrapped_access", "wrapped_key"]
    assert not cluster.events.state


@pytest.mark.long
async def test_a_changed_object_is_shown_at_once_and_only_its_volumes_are_asked_for(cluster: Cluster) -> None:
    cluster.admit("u", "access", "key")
    async with cluster.volume():
        await cluster.until_mounted("u", "key")
        before = cluster.asked.copy()
        cluster.put("Secret", "s", "2", password="changed", user="root")
        await cluster.until_shown("u", "key", password="changed", user="root")
        cluster.put("Secret", "s", "3", user="root")
        await cluster.until_shown("u", "key", user="root")
    assert cluster.asked - before == {"Secret/shop/s": 2}
    assert len(cluster.mounted.history) == 1


async def test_replaced_files_stay_a_moment_and_are_removed_without_a_request(cluster: Cluster) -> None:
    cluster.admit("u", "key")

    def directories() -> int:
        return sum(name.is_dir() and not name.is_symlink() for name in cluster.directory("u", "key").iterdir())

    async with cluster.volume():
        await cluster.until_mounted("u", "key")
        cluster.put("Secret", "s", "2", password="changed")
        await cluster.until_shown("u", "key", password="changed")
        async with asyncio.timeout(WAIT_SECONDS):
            while directories() > 1:
                await asyncio.sleep(0.01)
    assert cluster.read("u", "key") == {"password": "changed"}
    assert cluster.asked["Secret/shop/s"] == 2
    assert len(cluster.mounted.history) == 1


async def test_a_change_to_the_version_that_is_shown_sends_no_request(cluster: Cluster) -> None:
    cluster.admit("u", "key")
    async with cluster.volume():
        await cluster.until_mounted("u", "key")
        cluster.changed.delete("Secret/shop/s")
        cluster.put("Secret", "s", "1", password="hunter2")
        await cluster.network.settle()
    assert cluster.asked["Secret/shop/s"] == 1


async def test_a_missing_object_is_an_error_and_used_as_soon_as_it_exists(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_backoff, "RETRIES", Backoff(initial=3600.0))
    cluster.admit("u", "cfg")
    text = 'MountVolume.SetUp failed for volume "cfg" : configmap "x" not found'
    async with cluster.volume():
        state = await cluster.mounted.until(bool)
        assert state["u"].volumes == {"cfg": MountedVolume(state=VolumeState.ERROR, error=text)}
        (event,) = (await cluster.events.until(bool)).values()
        assert (event.type, event.reason, event.message, event.uid) == ("Warning", "FailedMount", text, "u")
        cluster.put("ConfigMap", "x", "1", a="1")
        await cluster.until_mounted("u", "cfg")
    assert cluster.read("u", "cfg") == {"a": "1"}


async def test_a_refresh_that_fails_is_an_event_and_leaves_the_volume_as_it_is(cluster: Cluster) -> None:
    cluster.admit("u", "key")
    async with cluster.volume():
        await cluster.until_mounted("u", "key")
        cluster.delete("Secret", "s")
        (event, *_) = (await cluster.events.until(bool)).values()
    assert event.message == 'MountVolume.SetUp failed for volume "key" : secret "s" not found'
    assert cluster.mounted.history == ["put u"]
    assert cluster.read("u", "key") == {"password": "hunter2"}


@pytest.mark.long
@pytest.mark.parametrize(
    "error",
    [
        'secrets "s" is forbidden: User "system:node:n" cannot get resource "secrets"',
        "failed to sync secret cache: timed out waiting for the condition",
        'object "shop"/"s" not registered',
    ],
)
async def test_who_does_not_know_the_pod_yet_is_waited_for_in_silence(cluster: Cluster, error: str) -> None:
    cluster.errors["Secret/shop/s"] = error
    cluster.admit("u", "key")
    async with cluster.volume():
        await cluster.mounted.until(bool)
        assert cluster.mounted.state["u"].volumes == {"key": MountedVolume(state=VolumeState.PENDING)}
        cluster.errors.clear()
        await cluster.until_mounted("u", "key")
    assert not cluster.events.state


async def test_a_lasting_failure_is_reported_after_a_while(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "QUIET_SECONDS", 0.0)
    cluster.errors["Secret/shop/s"] = 'secrets "s" is forbidden: no'
    cluster.admit("u", "key")
    async with cluster.volume():
        await cluster.events.until(bool)
        state = await cluster.mounted.until(bool)
    assert state["u"].volumes["key"].state is VolumeState.ERROR


async def test_sources_away_delays_its_volumes_alone_and_its_return_is_an_event(cluster: Cluster) -> None:
    cluster.network.kill("sources")
    cluster.admit("u", "key")
    cluster.admit("v", "cache", "labels")
    async with cluster.volume():
        await cluster.until_mounted("v", "labels")
        await cluster.start_sources()
        await cluster.until_mounted("u", "key")
    assert not cluster.events.state


async def test_an_ask_without_an_answer_is_repeated(cluster: Cluster) -> None:
    cluster.silent.add("sources")
    cluster.admit("u", "key")
    async with cluster.volume():
        await until_asked(cluster)
        await cluster.network.advance(REQUESTED_READ_TIMEOUT_SECONDS + 1)
        cluster.silent.clear()
        await cluster.until_mounted("u", "key")
    assert not cluster.events.state


async def test_a_pod_that_ends_does_not_wait_for_answers(cluster: Cluster) -> None:
    cluster.silent.add("sources")
    cluster.admit("u", "key", "cache")
    async with cluster.volume():
        await until_asked(cluster)
        cluster.admit("u", state=PodState.TERMINATED)
        await cluster.mounted.until(lambda state: not state)
        cluster.admit("u", state=PodState.FINISHED)
        async with asyncio.timeout(WAIT_SECONDS):
            while (cluster.root / "pods" / "u").exists():
                await asyncio.sleep(0)


async def test_the_token_of_a_pod_that_is_deleted_before_its_volume_is_mounted_is_forgotten(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = token_cache.TokenCache()
    monkeypatch.setattr(cluster_content, "TokenCache", lambda: tokens)
    cluster.silent = {"sources"}  # the volume waits for its ConfigMap
    async with cluster.volume(), asyncio.timeout(WAIT_SECONDS):
        for uid in ("u1", "u2", "u3"):
            cluster.admit(uid, "access")
        while len(tokens) < 3:
            await asyncio.sleep(0)
        cluster.admitted.delete("u1")
        cluster.admitted.delete("u2")
        while len(tokens) > 1:
            await asyncio.sleep(0)


@pytest.mark.long
async def test_a_changed_label_is_shown_and_an_ended_pod_leaves_nothing(cluster: Cluster) -> None:
    cluster.admit("u", "labels", "key", labels={"a": "1"})
    async with cluster.volume():
        await cluster.until_mounted("u", "labels")
        cluster.admit("u", "labels", "key", labels={"a": "2"})
        await cluster.until_shown("u", "labels", labels='a="2"')
        assert cluster.mounted.history == ["put u"]
        cluster.admit("u", state=PodState.TERMINATED)
        await cluster.mounted.until(lambda state: not state)
        cluster.admit("u", state=PodState.FINISHED)
        async with asyncio.timeout(WAIT_SECONDS):
            while (cluster.root / "pods" / "u").exists():
                await asyncio.sleep(0)


async def test_a_restart_without_the_other_services_publishes_what_is_mounted_and_keeps_it(cluster: Cluster) -> None:
    cluster.admit("u", "access", "key")
    async with cluster.volume():
        await cluster.until_mounted("u", "access")
    before, history = cluster.mounted.state, cluster.mounted.history
    cluster.network.kill("sources")
    cluster.network.kill("status")
    cluster.token = IssuedToken(token="jwt-2", expiration="2100-01-01T00:00:00Z")
    async with cluster.volume():
        await cluster.mounted.until(lambda _: times_complete(cluster) == 2)
        await cluster.network.settle()
        assert cluster.read("u", "access")["token"] == "jwt-1"
        await cluster.start_sources()
        await cluster.start_status()
        await cluster.until_shown("u", "access", **{"token": "jwt-2", "ca.crt": "CA", "namespace": "shop"})
    assert cluster.mounted.state == before
    assert set(cluster.mounted.history) == set(history)
    assert not cluster.events.state


async def until_asked(cluster: Cluster) -> None:
    """Until a request has reached one of the others, played or silent."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not cluster.asked:
            await asyncio.sleep(0)


def times_complete(cluster: Cluster) -> int:
    """How often volume has published its list as complete."""
    return len([change for change in cluster.mounted.changes if isinstance(change, Freshness) and change.complete])


@pytest.mark.long
async def test_one_ask_for_all_that_want_the_same(cluster: Cluster) -> None:
    for number in range(30):
        cluster.admit(f"u{number}", "access")
    async with cluster.volume():
        await cluster.mounted.until(lambda state: len(state) == 30)
    assert cluster.asked["ConfigMap/shop/ca"] == 1
    assert sum(count for what, count in cluster.asked.items() if what.startswith("token")) == 30


async def test_the_periodic_refresh_finds_a_change_without_an_event(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciliation, "TURN_SECONDS", 0.01)
    cluster.admit("u", "key")
    async with cluster.volume(sync_frequency=0.02):
        await cluster.until_mounted("u", "key")
        cluster.objects["Secret/shop/s"]["data"] = {"password": "bmV3"}
        await cluster.until_shown("u", "key", password="new")


async def test_a_token_is_renewed_before_it_expires_and_kept_when_that_fails(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "MAX_USE_SECONDS", 0.05)
    monkeypatch.setattr(token_cache.CachedToken, "refresh_at", lambda self, jitter: self.received + 0.05)
    monkeypatch.setattr(cluster_content, "RETRY_SECONDS", 0.05)
    cluster.admit("u", "access")
    async with cluster.volume():
        await cluster.until_mounted("u", "access")
        cluster.token = IssuedToken(error="the server is not well")
        before = cluster.asked.total()
        async with asyncio.timeout(WAIT_SECONDS):
            while cluster.asked.total() < before + 2:
                await asyncio.sleep(0)
        assert cluster.read("u", "access")["token"] == "jwt-1"
        cluster.token = IssuedToken(token="jwt-2", expiration="2100-01-01T00:00:00Z")
        await cluster.until_shown("u", "access", **{"token": "jwt-2", "ca.crt": "CA", "namespace": "shop"})
    assert not cluster.events.state


async def test_a_first_token_that_is_not_issued_is_an_error(cluster: Cluster) -> None:
    cluster.token = IssuedToken(not_found=True, error='serviceaccounts "builder" not found')
    cluster.admit("u", "access")
    async with cluster.volume():
        (event, *_) = (await cluster.events.until(bool)).values()
    assert event.message == (
        'MountVolume.SetUp failed for volume "access" : failed to fetch token: serviceaccounts "builder" not found'
    )


@pytest.mark.long
async def test_a_token_is_requested_again_in_silence_while_the_api_server_does_not_know_the_pod_yet(
    cluster: Cluster,
) -> None:
    token = cluster.token
    cluster.token = IssuedToken(not_found=True, error='pod "web-u" not found')
    cluster.admit("u", "access")
    async with cluster.volume():
        await cluster.mounted.until(bool)
        assert cluster.mounted.state["u"].volumes == {"access": MountedVolume(state=VolumeState.PENDING)}
        cluster.token = token
        await cluster.until_mounted("u", "access")
    assert not cluster.events.state


async def test_what_rests_on_the_node_waits_for_its_resources_and_follows_them(cluster: Cluster) -> None:
    cluster.admit("u", "limit")
    async with cluster.volume():
        state = await cluster.mounted.until(bool)
        assert state["u"].volumes["limit"].state is VolumeState.PENDING
        cluster.resources.put("node", NodeResources(capacity={}, allocatable={"cpu": "1", "memory": "1000"}))
        await cluster.until_mounted("u", "limit")
        assert cluster.read("u", "limit") == {"memory": "1000"}
        cluster.resources.put("node", NodeResources(capacity={}, allocatable={"cpu": "1", "memory": "2000"}))
        await cluster.until_shown("u", "limit", memory="2000")


async def test_no_content_is_in_any_log_event_or_stream(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cluster.admit("u", "access", "key")
    cluster.admit("v", "cfg")
    async with cluster.volume():
        await cluster.until_mounted("u", "key")
        await cluster.events.until(bool)
        cluster.put("Secret", "s", "2", password="hunter3")
        await cluster.until_shown("u", "key", password="hunter3")
    published = f"{caplog.text} {cluster.mounted.changes} {cluster.events.changes}"
    assert "MountVolume u/key" in caplog.text
    assert not any(secret in published for secret in ("hunter", "aHVudGVy", "jwt-1"))


async def test_a_token_that_has_ended_while_the_machine_was_suspended_is_renewed_at_once(cluster: Cluster) -> None:
    cluster.token = IssuedToken(token="jwt-1", expiration=rfc3339(cluster.wall() + 3600), lifetime=3600)
    cluster.admit("u", "access")
    async with cluster.volume():
        await cluster.until_mounted("u", "access")
        cluster.token = IssuedToken(token="jwt-2", expiration="2100-01-01T00:00:00Z")
        cluster.suspended = 8 * 3600.0
        cluster.resumption.look()
        await cluster.until_shown("u", "access", **{"token": "jwt-2", "ca.crt": "CA", "namespace": "shop"})
