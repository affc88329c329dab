"""Image pulls over a fake runtime whose registry asks for credentials, and a cluster with pull secrets."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bus.messages.status import IssuedToken
from services.podsync.adapters.images.image_pulls import ImagePulls, InspectedImage, PulledImage
from services.podsync.core.cri.environment import ReferencedObject
from shared.config.effective import EffectiveConfig
from shared.cri.interface import Message, RuntimeCallError
from shared.model.objects import Object
from shared.time.clock import Clock
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.no_cluster import NoCluster

REGISTRY = "r.example"
IMAGE = f"{REGISTRY}/app:1"
REFUSED = "failed to authorize: 401 Unauthorized"


class Secrets(NoCluster):
    """A cluster that has these pull secrets and service accounts; `asked` counts."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.accounts: dict[str, Object] = {}
        self.tokens: list[dict[str, Any]] = []  # specs that were asked for
        self.expiration = "2100-01-01T00:00:00Z"

    def add(self, name: str, user: str, *, uid: str = "", place: str = REGISTRY) -> None:
        """A secret of namespace `ns` with this user, whose password is `<user>-word`."""
        auths = {place: {"username": user, "password": f"{user}-word"}}
        self.put(name, "kubernetes.io/dockerconfigjson", ".dockerconfigjson", json.dumps({"auths": auths}), uid=uid)

    def add_users(self, *names: str) -> None:
        """Add a secret for each of these users, with the user's name."""
        for name in names:
            self.add(name, name)

    def put(self, name: str, kind: str, key: str, content: str, *, uid: str = "") -> None:
        """A secret with this content."""
        metadata = {"namespace": "ns", "name": name, "uid": uid or f"uid-{name}"}
        data = {key: base64.b64encode(content.encode()).decode()}
        self.objects[name] = {"metadata": metadata, "type": kind, "data": data}

    async def secret(self, space: str, name: str) -> ReferencedObject:
        found = self.objects.get(name)
        return ReferencedObject(found, not_found=not found, error="" if found else f'secret "{name}" not found')

    async def service_account(self, space: str, name: str) -> ReferencedObject:
        found = self.accounts.get(name)
        return ReferencedObject(found, error="" if found else "not found")

    async def token(self, space: str, service_account: str, spec: dict[str, Any]) -> IssuedToken:
        self.tokens.append(spec)
        return IssuedToken(token=f"token-{len(self.tokens)}", expiration=self.expiration)


class Registry(FakeRuntime):
    """A runtime whose registry lets `users` pull, and every user where that is None."""

    users: frozenset[str] | None = None

    async def pull_image(self, image: Message, sandbox_config: Message, auth: Message | None = None) -> str:
        if self.users is not None and (auth or {}).get("username") not in self.users:
            user = (auth or {}).get("username", "anonymous")
            self.calls_refused.append(user)
            raise RuntimeCallError("PullImage", "Unknown", f"{REFUSED} of {user}")
        return await super().pull_image(image, sandbox_config, auth)

    @property
    def calls_refused(self) -> list[str]:
        """Users that were turned away, in order."""
        found: list[str] = self.__dict__.setdefault("_refused", [])
        return found


class PullStage:
    """podsync's image side, started again and again over one runtime and one directory."""

    def __init__(self, directory: Path, clock: Clock | None = None, /, **config: Any) -> None:
        self.directory, self.config = directory, config
        self.runtime, self.cluster = Registry(clock, pullable=[IMAGE]), Secrets()
        self.live()

    def only(self, *users: str) -> None:
        """Let the registry serve these users alone."""
        self.runtime.users = frozenset(users)

    def live(self) -> None:
        """Start it again."""
        own: dict[str, Any] = {"serialize_image_pulls": True, "registry_pull_qps": 0, **self.config}
        own |= {name: str(self.directory / name) for name in ("root_dir", "run_dir", "log_dir", "cert_dir")}
        self.pulls = ImagePulls(self.runtime, self.runtime.clock, EffectiveConfig(node_name="n", **own))

    async def inspect(self, pod: Object, image: str = IMAGE, policy: str = "IfNotPresent") -> InspectedImage:
        return await self.pulls.inspect(pod, image, policy, self.cluster)

    async def pull(self, pod: Object, image: str = IMAGE, policy: str = "IfNotPresent") -> PulledImage:
        return await self.pulls.pull(pod, image, policy, {"hostname": "h"}, self.cluster)

    async def may_use(self, pod: Object, image: str = IMAGE) -> bool:
        """The image is here and needs no pull for this pod."""
        found = await self.inspect(pod, image)
        return found.image is not None and not found.must_pull

    def files(self, kind: str) -> list[Object]:
        """The records of this kind on disk: pulling, pulled."""
        directory = self.directory / "root_dir" / "image_manager" / kind
        return [json.loads(path.read_text()) for path in sorted(directory.glob("sha256-*"))]

    def tried(self) -> list[str]:
        """The users of the pulls that reached the registry and were let in."""
        return [request.get("auth", {}).get("username", "") for request in self.runtime.requests("PullImage")]


def pod(*secrets: str, uid: str = "p1", account: str = "", **metadata: Any) -> Object:
    """A pod of namespace `ns` with these pull secrets."""
    spec: Object = {"imagePullSecrets": [{"name": name} for name in secrets]}
    if account:
        spec["serviceAccountName"] = account
    return {"metadata": {"namespace": "ns", "name": "p", "uid": uid, **metadata}, "spec": spec}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PullStage:
    """Return a stage of pulls that has no credentials of this machine."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return PullStage(tmp_path)
