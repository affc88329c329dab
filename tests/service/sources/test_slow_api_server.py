"""An API server that is slow, throttles or stalls is no outage: watches go on, and nothing is listed again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from services.sources.controllers import fetched_objects, read_places, volume_claims
from shared.kube import paths
from shared.kube.interface import ApiClient, ApiUnreachableError
from shared.model.objects import Object
from tests.fakes.api_server import Received
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node, noticed_within, pod
from tests.service.sources.shown_secrets import USER, put_secret, showing, version_of
from tests.service.sources.test_volume_claims import put as put_claim

pytestmark = pytest.mark.virtual_time

SECRETS = [f"s{number}" for number in range(100)]


async def busy(node: ClusterNode) -> None:
    """A node with as many watches as it opens."""
    for name in SECRETS:
        put_secret(node, name)
    node.api.bind(showing("web", *SECRETS), NODE)
    await node.start()
    await node.pass_time(60.0)


def lists(node: ClusterNode) -> int:
    return sum(node.asked("GET", collection) for collection in ("/pods", "/nodes", "/secrets", "/services"))


async def minute(node: ClusterNode) -> int:
    """How many requests a minute brings while an object changes and is read each second."""
    before = len(node.api.requests)
    for _ in range(60):
        put_secret(node, "s0")
        await node.pass_time(1.0)
    return len(node.api.requests) - before


@pytest.mark.long
async def test_one_slow_read_lists_nothing_again(node: ClusterNode) -> None:
    await busy(node)
    before, watches = lists(node), node.asked("WATCH", "/secrets")
    node.api.slow(6.0)
    assert (await node.ask("Secret", "s0", fresh=True, within=6.1)).object is not None
    node.api.slow(0.0)
    await node.pass_time(30.0)
    assert (lists(node), node.asked("WATCH", "/secrets"), node.troubles()) == (before, watches, ())


@pytest.mark.long
async def test_lists_that_take_twenty_seconds_each_are_read(node: ClusterNode) -> None:
    node.api.slow(lambda received: 20.0 if received.method == "GET" else 0.0)
    node.api.bind(pod("web"), NODE)
    await node.start()
    await node.until(lambda: node.wanted() == ["web"], within=150.0)  # 116 to 120 s by the chance in their delays
    assert node.nodes.complete


REFUSALS = pytest.mark.parametrize(("code", "retry_after"), [(429, 1.0), (429, 30.0), (503, 1.0), (500, None)])


@pytest.mark.long
@pytest.mark.share(4)
@REFUSALS
async def test_two_minutes_of_refusals_cost_no_requests(
    node: ClusterNode, code: int, retry_after: float | None
) -> None:
    await busy(node)
    before, undisturbed = lists(node), await minute(node)
    node.api.refuse(0, code, retry_after=retry_after)
    assert [await minute(node), await minute(node)] == [undisturbed, undisturbed]
    node.api.up()
    node.api.bind(pod("comes"), NODE)
    await node.until(lambda: node.wanted() == ["comes", "web"], within=0.1)
    assert (lists(node), node.troubles()) == (before, ())


@pytest.mark.long
@pytest.mark.share(4)
@REFUSALS
async def test_a_watch_that_is_refused_for_two_minutes_backs_off_and_resumes(
    node: ClusterNode, code: int, retry_after: float | None
) -> None:
    await busy(node)
    before = lists(node)
    for stream in list(node.api.store.streams):
        if stream._target.resource.plural == "pods":
            stream.break_off()
    node.api.refuse(0, code, retry_after=retry_after)
    requests = len(node.api.requests)
    await node.pass_time(120.0)
    assert len(node.api.requests) - requests < 30
    assert [line for line in node.troubles() if line.startswith("pods: the API server")]
    node.api.up()
    node.api.bind(pod("comes"), NODE)
    await node.until(lambda: node.wanted() == ["comes", "web"], within=max(10.1, 1.25 * (retry_after or 0.0)))
    assert (lists(node), node.troubles()) == (before, ())


@pytest.mark.long
async def test_a_stall_of_twenty_seconds_costs_neither_lists_nor_many_requests(node: ClusterNode) -> None:
    await busy(node)
    before, secrets = lists(node), node.asked("WATCH", "/secrets")
    node.api.pause()
    asking = asyncio.create_task(node.ask("Secret", "s0", fresh=True, within=21.0))
    node.api.bind(pod("comes"), NODE)
    newest = put_secret(node, "s7")
    requests = len(node.api.requests)
    await node.pass_time(20.0)
    node.api.resume()
    assert (await asking).object is not None
    await node.until(lambda: "comes" in node.wanted() and version_of(node, "s7") == newest, within=1.0)
    await node.until(lambda: node.troubles() == (), within=10.0)
    await node.pass_time(30.0)
    assert (lists(node), node.asked("WATCH", "/secrets")) == (before, secrets)
    assert len(node.api.requests) - requests <= 3


@pytest.mark.long
async def test_an_outage_costs_one_list_by_which_the_store_is_compared(node: ClusterNode) -> None:
    await busy(node)
    before = lists(node)
    node.api.down()
    await node.pass_time(60.0)
    newest = put_secret(node, "s9")
    node.api.delete(paths.pod("default", "web"), grace=30)
    node.api.up()
    await node.until(lambda: version_of(node, "s9") == newest, within=noticed_within(60.0) + 2.0)
    await node.pass_time(30.0)
    assert lists(node) - before == 1
    assert node.asked("WATCH", "/secrets") == 2 * len(SECRETS)


@pytest.mark.parametrize("quick", [False, True], ids=["after an outage", "within moments"])
async def test_a_store_that_was_restored_is_listed_again(node: ClusterNode, quick: bool) -> None:
    node.api.bind(showing("web", "s"), NODE)
    put_secret(node, "s")
    backup = node.api.store.backup()
    node.api.bind(pod("lost"), NODE)
    for _ in range(5):
        put_secret(node, "s")
    await node.start()
    assert node.wanted() == ["lost", "web"]
    node.api.down()
    node.api.store.restore(backup)
    await node.pass_time(0.0 if quick else 30.0)
    node.api.up()
    restored = str((node.api.get(f"{paths.referenced('Secret', 'default')}/s") or {})["metadata"]["resourceVersion"])
    within = 10.0 + noticed_within(0.0 if quick else 30.0)
    await node.until(lambda: node.wanted() == ["web"] and version_of(node, "s") == restored, within)
    node.api.bind(pod("comes"), NODE)
    await node.until(lambda: node.wanted() == ["comes", "web"], within=2.0)


@pytest.mark.long
async def test_watches_do_not_all_resume_in_the_same_instant(node: ClusterNode) -> None:
    await busy(node)
    node.api.down()
    await node.pass_time(20.0)
    node.api.up()
    before, seen = node.asked("WATCH", "/secrets"), set[int]()
    while len(SECRETS) not in seen:
        await node.pass_time(0.1)
        seen.add(node.asked("WATCH", "/secrets") - before)
    assert max(seen) == len(SECRETS) and len(seen) > 5


async def test_an_api_server_that_answers_some_and_refuses_others_is_not_asked_all_the_time(tmp_path: Path) -> None:
    class Refused:
        """The way to half of the API servers behind a balancer that still names them."""

        def __init__(self, client: ApiClient) -> None:
            self._client, self.dials = client, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._client, name)

        def watch(self, path: str, query: Any, **limits: Any) -> Any:
            self.dials += 1
            raise ApiUnreachableError("connection refused")

    async with cluster_node(tmp_path, feature_gates={"WatchListClient": False}) as node:
        for name in SECRETS[:10]:
            put_secret(node, name)
        node.api.bind(showing("web", *SECRETS[:10]), NODE)
        refused: Any = Refused(node.api.client(USER))
        await node.start(node.api.client(USER), objects_client=refused)
        await node.pass_time(60.0)
        before, dials = len(node.api.requests), refused.dials
        await node.pass_time(60.0)
        assert refused.dials - dials <= 11 * 14, "each watch backs off"
        assert len(node.api.requests) - before <= 80, "a list and a watch of the node each 1.5 s at most"
        assert node.asked("GET", "/secrets") == 10


@pytest.mark.long
async def test_in_an_outage_only_the_list_of_our_node_is_sent_and_that_rarely(node: ClusterNode) -> None:
    await busy(node)
    arrive, sent = node.api.arrive, list[str]()

    async def counted(received: Received, timeout: float | None) -> None:
        sent.append(f"{received.method} {received.path}")
        await arrive(received, timeout)

    node.api.arrive = counted  # type: ignore[method-assign]
    node.api.down()
    await node.pass_time(60.0)
    sent.clear()
    assert "not reachable" in (await node.ask("VolumeAttachment", "a", fresh=True)).error
    await node.pass_time(300.0)
    assert set(sent) == {f"GET {paths.NODES}"} and 4 <= len(sent) <= 10


@pytest.mark.share(3)
@pytest.mark.parametrize("strategy", ["Watch", "Cache", "Get"])
async def test_objects_are_read_while_each_list_and_get_takes_twenty_seconds(tmp_path: Path, strategy: str) -> None:
    async with cluster_node(tmp_path, change_detection_strategy=strategy) as node:
        node.api.slow(lambda received: 20.0 if received.method == "GET" else 0.0)
        put_secret(node, "s")
        put_claim(node, bound=True)
        node.api.put(f"{paths.VOLUME_ATTACHMENTS}/csi-1", {"metadata": {"name": "csi-1"}})
        web = showing("web", "s")
        web["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})
        node.api.bind(web, NODE)
        await node.start()
        await node.until(lambda: node.wanted() == ["web"], within=120.0)
        await node.pass_time(60.0 if strategy == "Watch" else 0.0)
        asked = {
            "Secret": node.ask("Secret", "s", within=45.0),
            "PersistentVolumeClaim": node.ask("PersistentVolumeClaim", "data", within=45.0),
            "VolumeAttachment": node.ask("VolumeAttachment", "csi-1", namespace="", within=45.0),
            "VolumeSecret": node.ask("VolumeSecret", "s", within=45.0),
            "Node": node.ask("Node", NODE, namespace="", fresh=True, within=45.0),
        }
        found = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
        assert {kind: answer.error for kind, answer in found.items()} == dict.fromkeys(asked, "")
        volume = await node.ask("PersistentVolume", "pv-1", namespace="", within=45.0)
        assert volume.object is not None


PLACES = {"PersistentVolumeClaim": volume_claims.MAX_READS, "Secret": fetched_objects.MAX_READS}


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", PLACES)
async def test_reads_without_an_answer_hold_up_no_other_and_are_not_too_many(tmp_path: Path, kind: str) -> None:
    def showing_all(name: str, *names: str) -> Object:
        made = showing(name, *names)
        if kind != "Secret":
            made["spec"]["volumes"] = [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]
        return made

    slow = [f"slow{number}" for number in range(2 * PLACES[kind])]
    more = [f"slow{number}" for number in range(len(slow), read_places.MAX_SLOW_READS + 2 * PLACES[kind])]
    async with cluster_node(tmp_path, change_detection_strategy="Get") as node:
        sent = set[str]()

        def seconds(received: Received) -> float:
            sent.update({received.path} if "/slow" in received.path else ())
            return 59.0 if received.method == "GET" and "/slow" in received.path else 0.0

        node.api.slow(seconds)
        for name in [*slow, *more, "data"]:
            put_secret(node, name)
            put_claim(node, bound=True, name=name, volume=f"pv-{name}")
        await node.start()
        node.api.bind(showing_all("slow", *slow), NODE)
        await node.settle()
        asking = [asyncio.create_task(node.ask(kind, name, within=130.0)) for name in slow]
        await node.pass_time(0.5)
        node.api.bind(showing_all("web", "data"), NODE)
        await node.settle()
        assert (await node.ask(kind, "data", within=2 * read_places.SLOW_AFTER_SECONDS)).object is not None
        node.api.bind(showing_all("more", *more), NODE)
        await node.settle()
        asking += [asyncio.create_task(node.ask(kind, name, within=130.0)) for name in more]
        await node.pass_time(40.0)
        assert 2 * PLACES[kind] < len(sent) <= read_places.MAX_SLOW_READS + PLACES[kind]
        node.api.delete(paths.pod("default", "slow"), grace=0)
        node.api.delete(paths.pod("default", "more"), grace=0)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.parametrize("kind", PLACES)
async def test_an_api_server_that_hangs_gets_few_reads_at_once(tmp_path: Path, kind: str) -> None:
    names = [f"n{number}" for number in range(read_places.MAX_SLOW_READS + 2 * PLACES[kind])]
    web = showing("web", *names)
    if kind != "Secret":
        web["spec"]["volumes"] = [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]
    async with cluster_node(tmp_path, change_detection_strategy="Get") as node:
        arrive, under_way, most = node.api.arrive, 0, 0

        async def counted(received: Received, timeout: float | None) -> None:
            nonlocal under_way, most
            counts = received.method == "GET" and received.path.rpartition("/")[2] in names
            under_way += counts
            most = max(most, under_way)
            try:
                await arrive(received, timeout)
            finally:
                under_way -= counts

        node.api.arrive = counted  # type: ignore[method-assign]

        async def ask_again(name: str) -> None:
            while not (await node.get_object(kind, name)).object:
                await asyncio.sleep(1.0)

        for name in names:
            put_secret(node, name)
            put_claim(node, bound=True, name=name, volume=f"pv-{name}")
        await node.start()
        node.api.bind(web, NODE)
        await node.until(lambda: node.wanted() == ["web"], within=1.0)
        node.api.pause()
        for name in names:
            put_secret(node, name)
        asking = [asyncio.create_task(ask_again(name)) for name in names]
        await node.pass_time(200.0)  # what was sent before the first read failed has ended, of a claim both its reads
        most = under_way
        await node.pass_time(150.0)
        assert PLACES[kind] / 2 <= most <= PLACES[kind]
        node.api.resume()
        await node.until(lambda: all(task.done() for task in asking), within=20.0)
