"""Real pulls on a node that runs alone: a registry that is away, one with TLS, credential plugins, kills on the way."""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from shared.model.objects import Object
from tests.support.agents.world import World, busybox_pod
from tests.support.clusters.control_plane_certificates import Authority
from tests.support.installed.chosen_programs import runs_in_docker
from tests.support.installed.debian_containerd import INSTALLED, fetch_programs
from tests.support.installed.lacking import lack
from tests.support.runtime.containerd import PrivateContainerd
from tests.support.runtime.plugin_scripts import API, answering, asked, plugin_flags, write_plugin
from tests.support.runtime.registry import Registry, asks_for_credentials, password

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def pod_of(name: str, image: str, policy: str = "IfNotPresent") -> Object:
    pod = busybox_pod(name)
    pod["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": policy}
    return pod


async def waiting(world: World, name: str) -> Object:
    """What the container of the static pod waits for; {} where it does not."""
    pod = await world.pod(name)
    statuses = (pod or {}).get("status", {}).get("containerStatuses") or [{}]
    return dict(statuses[0].get("state", {}).get("waiting") or {})


async def wait_waiting(world: World, name: str, *reasons: str) -> str:
    """Wait until the container waits for one of these reasons; returns the message."""

    async def waits() -> Object | None:
        found = await waiting(world, name)
        return found if found.get("reason") in reasons else None

    return str((await world.wait_for(waits, f"pod {name} to wait for {reasons}"))["message"])


def records(world: World, kind: str = "pulled") -> list[Object]:
    directory = world.home.path / "kubelet/image_manager" / kind
    return [json.loads(path.read_text()) for path in directory.glob("sha256-*")]


def access(world: World, image: str) -> list[Object | None]:
    """The entry of this image in each record, None in one without it."""
    name = image.rpartition(":")[0]
    return [record.get("credentialMapping", {}).get(name) for record in records(world)]


async def test_an_image_is_pulled_from_a_real_registry_and_a_registry_that_is_away_is_waited_for(
    tmp_path: Path,
) -> None:
    registry = Registry(tmp_path / "registry")
    async with World() as world:
        with registry:
            image = registry.push("test/busybox:7")
            world.put_manifest("pulled", pod_of("pulled", image))
            await world.wait_running("pulled")
            text = f'Successfully pulled image "{image}" in'
            await world.wait_for(lambda: is_reported(world, text, reason="Pulled"), "the event of the pull")

            world.put_manifest("absent", pod_of("absent", registry.name("test/absent:1")))
            await wait_waiting(world, "absent", "ErrImagePull", "ImagePullBackOff")

            world.put_manifest("always", pod_of("always", image, "Always"))
            await world.wait_running("always")

        world.put_manifest("away", pod_of("away", registry.name("test/other:1")))
        await wait_waiting(world, "away", "ImagePullBackOff")
        world.put_manifest("never", pod_of("never", "127.0.0.1:1/test/never:1", "Never"))
        await wait_waiting(world, "never", "ErrImageNeverPull")


async def test_a_kill_at_any_point_of_a_pull_ends_in_one_record_and_no_note(tmp_path: Path) -> None:
    points = ("intent", "pulled", "recorded")
    async with World() as world:
        with Registry(tmp_path / "registry") as registry:
            for point in points:
                image = registry.push(f"killed/{point}:1")
                pid = world.pid_of("podsync")
                world.crash_at(f"podsync.image.{point}")
                world.kill("supervisord", signal.SIGSTOP)  # no next process, until the records were read
                try:
                    world.put_manifest(point, pod_of(point, image))
                    await world.wait_for(lambda: world.crashed, f"podsync to die at {point}")
                    noted = [note["image"] for note in records(world, "pulling")]
                    assert noted == [image], point
                    assert len(access(world, image)) - access(world, image).count(None) == (point == "recorded")
                finally:
                    world.kill("supervisord", signal.SIGCONT)
                await world.wait_back("podsync", pid)
                await world.wait_running(point)
                assert {"nodePodsAccessible": True} in access(world, image), point
                assert records(world, "pulling") == []
            assert len(records(world)) == len(points)


def write_hosts(directory: Path, registry: str, text: str) -> None:
    """What containerd reads about this registry: `certs.d/<registry>/hosts.toml`."""
    file = directory / "certs.d" / registry / "hosts.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def is_reported(world: World, *parts: str, reason: str = "Failed") -> bool:
    """Return whether status has logged an event of this reason that contains all of these texts."""
    lines = [line for line in world.log_of("status").splitlines() if f"reason={reason}" in line]
    return any(all(part in line for part in parts) for line in lines)


def is_logged(world: World, text: str) -> bool:
    """Return whether podsync has logged the text; a thread of its own writes the log."""
    return text in world.log_of("podsync")


@asynccontextmanager
async def trusting_containerd(registry: Registry, authority: Authority) -> AsyncIterator[PrivateContainerd]:
    """A containerd that knows the registry's authority."""
    with tempfile.TemporaryDirectory(prefix="bkc", dir="/tmp") as directory:
        containerd = PrivateContainerd(Path(directory))
        url = f"https://{registry.address}"
        trusted = f'capabilities = ["pull", "resolve"]\nca = "{authority.certificate_file}"\n'
        write_hosts(Path(directory), registry.address, f'server = "{url}"\n[host."{url}"]\n{trusted}')
        containerd.start()
        try:
            containerd.import_images()
            yield containerd
        finally:
            await containerd.stop()


async def test_a_registry_with_tls_is_opened_by_the_nodes_own_credentials(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    with Registry(tmp_path / "registry", users=True, authority=authority) as registry:
        image, other = registry.push("tls/app:1"), registry.push("tls/other:1")
        async with (
            trusting_containerd(registry, authority) as containerd,
            World(containerd=containerd, start=False) as world,
        ):
            config = world.home.path / "kubelet/config.json"
            config.parent.mkdir(exist_ok=True)
            config.write_text(json.dumps({"auths": registry.auths("bob", place=f"{registry.address}/tls/app")}))
            await world.start()
            world.put_manifest("app", pod_of("app", image))
            world.put_manifest("other", pod_of("other", other))
            await world.wait_running("app")
            assert access(world, image) == [{"nodePodsAccessible": True}]
            message = await wait_waiting(world, "other", "ErrImagePull", "ImagePullBackOff")
            assert "authoriz" in message
            assert password("bob") not in world.log_of("podsync")


@pytest.mark.skipif(runs_in_docker(), reason="certs.d is the embedded containerd's; Docker has its own")
@pytest.mark.parametrize(
    "suite", [*(pytest.param(suite, marks=pytest.mark.night) for suite in (INSTALLED, "trixie")), "sid"]
)
async def test_a_file_of_certs_d_brings_mirror_and_authority_to_the_containerd_that_runs(
    suite: str, tmp_path: Path
) -> None:
    try:
        path = f"{fetch_programs(suite)}:{os.environ['PATH']}"
    except OSError as error:
        lack(str(error))
    authority = Authority(tmp_path / "authority")
    with Registry(tmp_path / "registry", authority=authority) as registry:
        for name in ("before", "after", "unverified"):
            registry.push(f"team/{name}:1")
        mirror = f'[host."https://{registry.address}"]\ncapabilities = ["pull", "resolve"]\n'
        async with World(environment={"PATH": path}) as world:
            pid = world.pid_of("containerd")

            def pull(name: str, host: str) -> None:
                world.put_manifest(name, pod_of(name, f"{host}/team/{name}:1"))

            pull("before", "mirrored.test")
            await wait_waiting(world, "before", "ErrImagePull", "ImagePullBackOff")
            write_hosts(world.home.path, "mirrored.test", f'{mirror}ca = "{authority.certificate_file}"\n')
            pull("after", "mirrored.test")
            await world.wait_running("after")
            write_hosts(world.home.path, "unverified.test", f"{mirror}skip_verify = true\n")
            pull("unverified", "unverified.test")
            await world.wait_running("unverified")
            write_hosts(world.home.path, "damaged.test", 'server = "https://damaged.test\n')
            write_hosts(world.home.path, "untrusting.test", f'{mirror}ca = "/no/such/ca.crt"\n')
            for name, part in {"damaged": "certs.d/damaged.test/hosts.toml: ", "untrusting": "/no/such/ca.crt"}.items():
                registry.push(f"team/{name}:1")
                pull(name, f"{name}.test")
                assert part in await wait_waiting(world, name, "ErrImagePull", "ImagePullBackOff")
                await world.wait_for(partial(is_reported, world, f"{name}.test", part), f"the event of {name}")
            assert world.pid_of("containerd") == pid, "containerd was restarted"


async def test_credentials_come_from_plugins_and_failed_plugins_are_reported(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    with Registry(tmp_path / "registry", users=True) as registry:
        place = registry.address
        auth = {place: {"username": "ann", "password": password("ann")}}
        write_plugin(plugins, "good", answering(auth))
        write_plugin(plugins, "crash", "echo hush >&2; kill -9 $$")
        write_plugin(plugins, "huge", "yes hush")
        write_plugin(plugins, "old", answering(auth, apiVersion=f"{API}beta1"))
        flags = plugin_flags(
            plugins,
            {"name": "crash", "matchImages": [place]},
            {"name": "huge", "matchImages": [f"{place}/bad"]},
            {"name": "old", "matchImages": [f"{place}/bad"]},
            {"name": "good", "matchImages": [f"{place}/good"], "env": [{"name": "WORD", "value": "hush"}]},
        )
        async with World(flags=flags) as world:
            for name in ("good/one", "good/two", "bad/one"):
                world.put_manifest(name.replace("/", "-"), pod_of(name.replace("/", "-"), registry.push(f"{name}:1")))
            await world.wait_running("good-one")
            await world.wait_running("good-two")
            assert {request["image"].rpartition("/")[0] for request in asked(plugins, "good")} == {f"{place}/good"}
            assert access(world, registry.name("good/one:1")).count({"nodePodsAccessible": True}) == 1
            message = await wait_waiting(world, "bad-one", "ErrImagePull", "ImagePullBackOff")
            assert asks_for_credentials(message)
            texts = {"crash": "it ended with signal 9", "huge": "it wrote more than"}
            texts["old"] = f"its apiVersion is not {API}"
            for name, text in texts.items():
                line = f"credential plugin {name} is of no help for {place}/bad/one: {text}"
                await world.wait_for(partial(is_logged, world, line), f"podsync to log: {line}")
            log = world.log_of("podsync")
            assert "hush" not in log
            assert password("ann") not in log

            async def gone() -> bool:  # a process that was killed is there until the kernel has taken it down
                return not await asyncio.to_thread(processes_of, plugins / "huge")

            await world.wait_for(gone, "what the plugin has started to end")


def processes_of(program: Path) -> list[bytes]:
    """Command lines of what runs of it."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_bytes())
    return [line for line in lines if str(program).encode() in line]
