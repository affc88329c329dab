"""The configuration that a Node names, from the API server to what is in force, with everything that can be bad."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.bootstrap.core.config_source import LOAD_ERROR, MAX_CONFIG_MAP_BYTES
from tests.service.bootstrap.node_config_stage import (
    CONFIG_MAPS,
    NODES,
    SYNC_INTERNAL_ERROR,
    TRIAL,
    Make,
    Stage,
    node,
)
from tests.service.sources.cluster import NODE as NODE_NAME

pytestmark = pytest.mark.virtual_time

VALIDATE = "failed to validate config, see Kubelet log for details"
DOWNLOAD = "failed to sync: failed to download config, see Kubelet log for details"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    return lambda: Stage(tmp_path, monkeypatch)


async def test_without_a_source_the_local_configuration_is_used(make: Make) -> None:
    async with node(make) as stage:
        await stage.until("", "", "", "")
        assert (stage.max_pods, stage.messages) == (50, [])
        assert stage.record("assigned").read_bytes() == stage.record("last-known-good").read_bytes() == b""
        assert stage.series("kubelet_node_config_active") == {("local", "", "", ""): 1.0}
        assert stage.cluster.asked("GET", "/configmaps") == 0


@pytest.mark.long
async def test_a_good_configuration_is_used_and_good_after_ten_minutes(make: Make) -> None:
    async with node(make) as stage:
        version = stage.offer("a", maxPods=7)
        stage.name("a")
        await stage.until("a", "a", "", "")
        assert stage.max_pods == 7
        path = f"{CONFIG_MAPS}/a"
        uid = str((stage.api.get(path) or {})["metadata"]["uid"])
        assert stage.messages == [
            f"Kubelet restarting to use {path}, UID: {uid}, ResourceVersion: {version}, KubeletConfigKey: kubelet"
        ]
        labels = (path, uid, version, "kubelet")
        assert stage.series("kubelet_node_config_assigned") == {labels: 1.0}
        assert stage.checkpoint().parts[-4:] == ("checkpoints", uid, version, "kubelet")
        await stage.passes(TRIAL - 30)
        assert stage.shown == ("a", "a", "", "")
        await stage.until("a", "a", "a", "")
        assert stage.record("assigned").read_bytes() == stage.record("last-known-good").read_bytes() != b""
        assert stage.series("kubelet_node_config_error") == {(): 0.0}
        assert stage.evaluations == 2


@pytest.mark.long
async def test_an_edit_of_the_configmap_acts_and_is_on_trial_again(make: Make) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        await stage.passes(TRIAL - 30)
        stage.offer("a", maxPods=8)
        await stage.passes(10)
        assert stage.max_pods == 8
        await stage.passes(60)
        assert stage.shown == ("a", "a", "", "")
        await stage.until("a", "a", "a", "", within=TRIAL)


async def test_an_edit_while_the_edit_before_it_is_saved_acts(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(1.0)
        return function(*arguments)

    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        monkeypatch.setattr(asyncio, "to_thread", slow)
        stage.offer("a", maxPods=8)
        await stage.passes(1.5)
        stage.offer("a", maxPods=9)
        await stage.passes(30)
        assert stage.max_pods == 9


@pytest.mark.long
async def test_without_the_source_again_the_local_configuration_is_used(make: Make) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "a", "", within=TRIAL + 60)
        stage.name(None)
        await stage.until("", "", "", "")
        assert stage.max_pods == 50
        assert stage.messages[-1] == "Kubelet restarting to use local config"
        assert stage.record("assigned").read_bytes() == stage.record("last-known-good").read_bytes() == b""


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no such key": ({"key": "other", "maxPods": 7}, LOAD_ERROR),
    "no YAML": ({"text": "{"}, LOAD_ERROR),
    "nothing": ({"text": ""}, LOAD_ERROR),
    "a list": ({"text": "[1]"}, LOAD_ERROR),
    "another kind": ({"text": "apiVersion: v1\nkind: Pod\n"}, LOAD_ERROR),
    "a wrong type": ({"maxPods": "many"}, LOAD_ERROR),
    "too long": ({"text": "# " + "x" * 300_000}, LOAD_ERROR),
    "an invalid value": ({"maxPods": -5}, VALIDATE),
    "an unknown feature gate": ({"featureGates": {"Nonsense": True}}, VALIDATE),
    "what the flags do not fit": ({"runOnce": True}, VALIDATE),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("good", [False, True])
async def test_a_bad_configuration_is_reported_and_the_last_known_good_or_the_local_one_is_used(
    make: Make, what: str, good: bool
) -> None:
    async with node(make, "a", maxPods=7) as stage:
        if good:
            await stage.until("a", "a", "a", "", within=TRIAL + 60)
        given, error = BAD[what]
        stage.offer("bad", **given)
        stage.name("bad")
        expected = ("bad", "a", "a", error) if good else ("bad", "", "", error)
        await stage.until(*expected)
        assert stage.max_pods == (7 if good else 50)
        assert stage.series("kubelet_node_config_error") == {(): 1.0}
        evaluations = stage.evaluations
        await stage.passes(60)
        assert (stage.shown, stage.evaluations) == (expected, evaluations), "it is not evaluated again and again"
        await stage.kill()
        await stage.start_bootstrap()
        await stage.until(*expected)
        stage.offer("bad", maxPods=9)
        await stage.until("bad", "bad", "a" if good else "", "")
        assert stage.max_pods == 9


async def test_an_unknown_key_is_ignored(make: Make) -> None:
    async with node(make) as stage:
        stage.offer("a", maxPods=7, maxPodz=8)
        stage.name("a")
        await stage.until("a", "a", "", "")
        assert stage.max_pods == 7


NO_FIELD = "failed to sync: invalid NodeConfigSource, exactly one subfield must be non-nil, but all were nil"
PATH = {"namespace": "default", "name": "a", "kubeletConfigKey": "../../../etc/passwd"}
BAD_SOURCES = {
    "no field": ({}, NO_FIELD),
    "no map": ({"configMap": "a"}, NO_FIELD),
    "no names": ({"configMap": {}}, SYNC_INTERNAL_ERROR),
    "a path": ({"configMap": PATH}, SYNC_INTERNAL_ERROR),
}


@pytest.mark.parametrize("what", BAD_SOURCES)
async def test_a_bad_source_is_reported_and_changes_nothing(make: Make, what: str) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        source, error = BAD_SOURCES[what]
        stage.name(None, source)
        await stage.until("a", "a", "", error)
        stage.name("a")
        await stage.until("a", "a", "", "")
        assert stage.max_pods == 7


async def test_a_configmap_that_is_not_there_is_reported_until_it_is(make: Make) -> None:
    async with node(make, "a") as stage:
        await stage.until("", "", "", DOWNLOAD)
        await stage.passes(60)
        assert stage.shown == ("", "", "", DOWNLOAD)
        stage.offer("a", maxPods=7)
        await stage.until("a", "a", "", "", within=5)
        stage.api.delete(f"{CONFIG_MAPS}/a")
        await stage.until("a", "a", "", DOWNLOAD, within=5)
        assert stage.max_pods == 7
        await stage.until("a", "a", "a", DOWNLOAD, within=TRIAL + 60)


@pytest.mark.parametrize("size", [MAX_CONFIG_MAP_BYTES + 1, 10 * 2**20])
async def test_a_configmap_that_is_too_large_is_not_saved(make: Make, size: int) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        stage.offer("large", "x" * size)
        stage.name("large")
        await stage.until("a", "a", "", DOWNLOAD)
        assert len(list((stage.dynamic / "store/checkpoints").glob("*/*"))) == 1


async def test_a_key_that_is_a_path_is_never_a_file(make: Make) -> None:
    async with node(make) as stage:
        stage.offer("a", "x", key="../../../../escaped")
        stage.name("a")
        await stage.until("", "", "", SYNC_INTERNAL_ERROR)
        assert not list(stage.directory.rglob("escaped"))


@pytest.mark.long
async def test_without_the_api_server_the_saved_configuration_is_used(make: Make) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        await stage.cluster.kill()
        await stage.kill()
        await stage.start_agent()
        await stage.until("a", "a", "", "")
        assert stage.max_pods == 7
        await stage.until("a", "a", "a", "", within=TRIAL + 60)


async def test_the_node_is_deleted_and_the_configuration_stays(make: Make) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        stage.api.delete(f"{NODES}/{NODE_NAME}")
        await stage.passes(60)
        assert (stage.shown, stage.max_pods) == (("a", "a", "", ""), 7)


@pytest.mark.long
async def test_only_the_checkpoints_that_may_be_used_stay(make: Make) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "a", "", within=TRIAL + 60)
        for number in range(8, 20):
            stage.offer("a", maxPods=number)
            await stage.passes(5)
            assert stage.max_pods == number
        assert len(list((stage.dynamic / "store/checkpoints").glob("*/*"))) <= 3
