"""Images from real registries, one open and one for two users: pull secrets, events, and rights."""

import base64
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.kube import paths
from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import Node, container, pod_of, status_of
from tests.support.agents.conditions import is_ready
from tests.support.runtime.registry import Registry, asks_for_credentials, password, pull_secret
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [
    pytest.mark.root,
    pytest.mark.versions,
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300),
]

SECONDS = 2 * WAIT_SECONDS  # a pod of many that start at once, one pull at a time


class Shelf:
    """Both registries, and what was made of them on the node."""

    def __init__(self, node: Node, open_to_all: Registry, locked: Registry) -> None:
        self.node, self.open, self.locked = node, open_to_all, locked
        self.pods: list[str] = []
        self.secrets: list[str] = []
        self._pushed: set[str] = set()

    def image(self, path: str, *, locked: bool = True) -> str:
        """An image of this path, in the registry."""
        registry = self.locked if locked else self.open
        if registry.name(path) not in self._pushed:
            self._pushed.add(registry.push(path))
        return registry.name(path)

    async def secret(self, name: str, auths: Object, **how: Any) -> None:
        self.secrets.append(name)
        await self.node.create(pull_secret(name, auths, **how))

    async def pod(self, name: str, image: str, *secrets: str, policy: str = "IfNotPresent", **spec: Any) -> None:
        """Make a pod of the API with one container `c` of this image."""
        references = [{"name": secret} for secret in secrets]
        own = {"nodeName": NODE, "imagePullSecrets": references, "automountServiceAccountToken": False, **spec}
        self.pods.append(name)
        await self.node.create(pod_of(name, container("c", image=image, imagePullPolicy=policy), **own))

    async def ready(self, name: str) -> Object:
        return await self.node.wait_pod(name, is_ready, "to be ready", SECONDS)

    async def waiting(self, name: str, *reasons: str) -> str:
        """Wait until the container waits for one of these reasons; returns the message."""

        def waits(pod: Object) -> bool:
            return state(pod).get("reason") in reasons

        return str(state(await self.node.wait_pod(name, waits, f"to wait for {reasons}", SECONDS)).get("message"))

    async def wait_event(self, name: str, reason: str, text: str = "") -> str:
        """Wait for an Event of this reason about the pod; returns its message."""

        async def found() -> str | None:
            events = await self.node.events_of(name)
            return next((e["message"] for e in events if e["reason"] == reason and text in e["message"]), None)

        return str(await self.node.wait_for(found, f"event {reason} {text!r} of {name}", SECONDS))

    @property
    def root(self) -> Path:
        """The kubelet's root directory."""
        return self.node.agent.home.path / "kubelet"

    def record_of(self, image: str) -> Object:
        """The entry of this image in the record of the pull; {} where there is none."""
        name = image.rpartition(":")[0]
        records = [json.loads(path.read_text()) for path in (self.root / "image_manager/pulled").glob("sha256-*")]
        found = [r["credentialMapping"][name] for r in records if name in (r.get("credentialMapping") or {})]
        return dict(found[0]) if found else {}


def state(pod: Object) -> Object:
    """What the container waits for; {} where it does not."""
    return dict(status_of(pod, "c").get("state", {}).get("waiting") or {})


@pytest.fixture(scope="module")
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registry, Registry]]:
    directory = tmp_path_factory.mktemp("registries")
    with Registry(directory / "open") as open_to_all, Registry(directory / "locked", users=True) as locked:
        yield open_to_all, locked


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def shelf(node: Node, registries: tuple[Registry, Registry]) -> AsyncIterator[Shelf]:
    """Everything that needs nothing else first, at once."""
    shelf = Shelf(node, *registries)
    locked, place = shelf.locked, shelf.locked.address
    plain = {place: {"username": "ann", "password": password("ann")}}
    await shelf.secret("images-ann", locked.auths("ann"))
    await shelf.secret("images-plain", plain)
    await shelf.secret("images-legacy", locked.auths("ann"), legacy=True)
    await shelf.secret("images-wrong", locked.auths("ann", "hush-hush"))
    await shelf.secret("images-elsewhere", locked.auths("ann", place="127.0.0.1:1"))

    await shelf.pod("images-open", shelf.image("any/one:1", locked=False))
    for kind in ("plain", "legacy", "wrong", "elsewhere"):
        await shelf.pod(f"images-{kind}", shelf.image(f"by/{kind}:1"), f"images-{kind}")
    await shelf.pod("images-anonymous", shelf.image("by/nobody:1"))
    await shelf.pod("images-later", shelf.image("by/later:1"), "images-none", "images-nor")
    await shelf.pod("images-shared", shelf.image("by/shared:1"), "images-ann")
    yield shelf
    for name in shelf.pods:
        await node.delete_pod(name, 0)
    for name in shelf.secrets:
        await node.plane.admin.delete(f"{paths.referenced('Secret', 'default')}/{name}", {})
    await node.wait_gone(*shelf.pods)


async def test_an_open_registry_needs_no_credentials(shelf: Shelf) -> None:
    await shelf.ready("images-open")
    await shelf.wait_event("images-open", "Pulling")
    await shelf.wait_event("images-open", "Pulled", "Successfully pulled image")
    assert shelf.record_of(shelf.image("any/one:1", locked=False)) == {"nodePodsAccessible": True}


@pytest.mark.parametrize("kind", ["plain", "legacy"])
async def test_a_pull_secret_opens_the_registry(shelf: Shelf, kind: str) -> None:
    await shelf.ready(f"images-{kind}")
    (secret,) = shelf.record_of(shelf.image(f"by/{kind}:1"))["kubernetesSecrets"]
    assert (secret["namespace"], secret["name"]) == ("default", f"images-{kind}")


async def test_a_wrong_password_causes_an_event_that_does_not_show_it(shelf: Shelf) -> None:
    message = await shelf.waiting("images-wrong", "ErrImagePull", "ImagePullBackOff")
    assert "401" in message or asks_for_credentials(message)
    assert "hush" not in message
    await shelf.wait_event("images-wrong", "Failed", "Failed to pull image")


@pytest.mark.parametrize("kind", ["anonymous", "elsewhere"])
async def test_without_a_secret_for_it_the_registry_is_closed(shelf: Shelf, kind: str) -> None:
    assert asks_for_credentials(await shelf.waiting(f"images-{kind}", "ErrImagePull", "ImagePullBackOff"))


async def test_missing_secrets_cause_an_event_and_once_created_serve_the_next_pull(shelf: Shelf) -> None:
    message = await shelf.wait_event("images-later", "FailedToRetrieveImagePullSecret")
    missing = "Unable to retrieve some image pull secrets (images-none, images-nor)"
    assert message == f"{missing}; attempting to pull the image may not succeed."
    await shelf.waiting("images-later", "ErrImagePull", "ImagePullBackOff")
    await shelf.secret("images-none", shelf.locked.auths("ann"))
    await shelf.ready("images-later")


# A second pod and what the first has pulled


async def test_a_pod_without_the_secret_does_not_get_what_is_here(shelf: Shelf) -> None:
    await shelf.ready("images-shared")
    await shelf.pod("images-thief", shelf.image("by/shared:1"))
    assert asks_for_credentials(await shelf.waiting("images-thief", "ErrImagePull", "ImagePullBackOff"))


async def test_no_password_is_in_any_log_record_or_event(shelf: Shelf) -> None:
    await shelf.ready("images-plain")
    words = {password("ann").encode(), base64.b64encode(f"ann:{password('ann')}".encode()), b"hush"}
    read = dict[str, bytes]()
    for directory, _, names in os.walk(shelf.node.agent.home.path):
        for path in (Path(directory) / name for name in names):
            with suppress(OSError):  # the record of a pod that is gone by now; a socket
                if _is_ours(path):
                    read[str(path)] = path.read_bytes()
    assert any(path.endswith("podsync.log") for path in read)
    assert not [path for path, content in read.items() if any(word in content for word in words)]
    events = json.dumps(await shelf.node.items(paths.events("default")))
    assert not [word for word in words if word.decode() in events]


def _is_ours(path: Path) -> bool:
    """Written by the agent, and no image's content, volume or database of the runtime."""
    return (
        path.is_file() and not {"containerd", "docker", "volumes"} & set(path.parts) and path.stat().st_size < 1 << 26
    )
