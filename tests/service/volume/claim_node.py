"""A node with volume at work, drivers of dynamic resource allocation, and an API server with resource claims."""

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState, PodVolumes
from bus.messages.resource_claims import ClaimState, PodClaim, PodClaims
from bus.messages.sources import FoundObject, GetObject
from services.volume.adapters import cdi_specifications
from services.volume.controllers.resource_claims import RECORD
from services.volume.core.resource_claims import claim_failures
from shared.time.backoff import Backoff
from tests.programs.dra_driver import DraDriver
from tests.service.volume.node import started_node
from tests.support.waits.deadline import WAIT_SECONDS

GPU, NIC = "gpu.example.com", "nic.example.com"


class ClaimNode:
    """Has a node, the claims of namespace `shop`, and drivers. `silent`: the API server does not answer."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.objects: dict[str, dict[str, Any]] = {}
        self.silent = False
        self.read: Counter[str] = Counter()
        self._drivers: list[DraDriver] = []

    async def start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = await started_node(self.directory, monkeypatch)
        self.root = self.node.root
        self.cdi = self.root / "cdi"  # the machine's directory of CDI specifications
        self.cdi.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(cdi_specifications, "DIRECTORIES", (str(self.cdi),))
        (self.root / "plugins_registry").mkdir(parents=True, exist_ok=True)
        sources = self.node.network.bus("sources")
        sources.answer(GetObject, self._get)
        await sources.start()
        self.node.admitted.mark_complete()

    @property
    def record(self) -> Path:
        return self.root / RECORD

    def driver(self, name: str = GPU, *, specified: bool = False, **details: Any) -> DraDriver:
        """Return a driver that does not serve yet. `specified`: its CDI specifications are in the machine's directory,
        else in another one."""
        driver = DraDriver(self.root, name, **details)
        if specified:
            driver.cdi = self.cdi
        self._drivers.append(driver)
        return driver

    def started_driver(self, name: str = GPU, **details: Any) -> DraDriver:
        driver = self.driver(name, **details)
        driver.start()
        return driver

    def stop(self) -> None:
        for driver in self._drivers:
            driver.stop()

    def put(self, name: str, *pods: str, drivers: tuple[str, ...] = (GPU,), uid: str = "", owner: str = "") -> None:
        """Put a ResourceClaim that is allocated and reserved for these pods (UIDs). `owner`: the pod of a template."""
        results = [{"driver": driver, "pool": "node", "device": name, "request": "r"} for driver in drivers]
        self.objects[name] = {
            "metadata": {
                "name": name,
                "uid": uid or f"uid-of-{name}",
                "ownerReferences": [{"kind": "Pod", "uid": owner, "controller": True}] if owner else [],
            },
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": f"web-{pod}", "uid": pod} for pod in pods],
            },
        }

    def admit(self, uid: str, *claims: str, state: PodState = PodState.SYNC, **status: Any) -> None:
        """Publish a pod that names these ResourceClaims, or is to have them made by a template: `template:x`."""
        entries = [
            {"name": f"of-{claim.removeprefix('template:')}", "resourceClaimTemplateName": "t"}
            if claim.startswith("template:")
            else {"name": f"of-{claim}", "resourceClaimName": claim}
            for claim in claims
        ]
        pod = {"metadata": {"name": f"web-{uid}", "namespace": "shop", "uid": uid}, "spec": {"resourceClaims": entries}}
        pod["status"] = status
        self.node.admitted.put(
            uid, PodVolumes(uid=uid, name=f"web-{uid}", namespace="shop", state=state, pod=pod if claims else {})
        )

    def admit_extended(self, uid: str, claim: str, *mappings: tuple[str, str]) -> None:
        """Publish a pod whose extended resources are devices of the claim; `mappings`: container, request."""
        listed = [{"containerName": c, "resourceName": "e.com/gpu", "requestName": r} for c, r in mappings]
        status = {"extendedResourceClaimStatus": {"resourceClaimName": claim, "requestMappings": listed}}
        pod = {"metadata": {"name": f"web-{uid}", "namespace": "shop", "uid": uid}, "spec": {}, "status": status}
        item = PodVolumes(uid=uid, name=f"web-{uid}", namespace="shop", state=PodState.SYNC, pod=pod)
        self.node.admitted.put(uid, item)

    def end(self, uid: str) -> None:
        """Publish that the containers of the pod are gone."""
        self.admit(uid, state=PodState.TERMINATED)

    async def until(self, uid: str, fits: Callable[[PodClaims], bool]) -> PodClaims:
        state = await self.node.claims.until(lambda state: uid in state and fits(state[uid]))
        return state[uid]

    async def until_prepared(self, uid: str) -> tuple[PodClaim, ...]:
        return (await self.until(uid, is_prepared)).claims

    async def until_error(self, uid: str, text: str = "") -> PodClaim:
        item = await self.until(uid, lambda item: any(text in claim.error != "" for claim in item.claims))
        return next(claim for claim in item.claims if text in claim.error != "")

    async def until_gone(self, uid: str) -> None:
        await self.node.claims.until(lambda state: uid not in state)

    async def _get(self, request: GetObject) -> FoundObject:
        self.read[request.name] += 1
        if self.silent:
            await asyncio.Event().wait()
        assert (request.kind, request.namespace) == ("ResourceClaim", "shop")
        if request.name not in self.objects:
            text = f'resourceclaims.resource.k8s.io "{request.name}" not found'
            return FoundObject(object=None, not_found=True, error=text)
        return FoundObject(object=self.objects[request.name])


def is_prepared(item: PodClaims) -> bool:
    return all(claim.state is ClaimState.PREPARED for claim in item.claims)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no stream reports."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def claim_node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimNode]:
    """Yield a node in a directory with a short path: that of a socket has at most 107 bytes."""
    monkeypatch.setattr(claim_failures, "RETRIES", Backoff(initial=0.1, cap=0.3))
    with tempfile.TemporaryDirectory(prefix="dra") as directory:
        found = ClaimNode(Path(directory))
        await found.start(monkeypatch)
        try:
            yield found
        finally:
            found.stop()
