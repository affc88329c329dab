"""What a pull answers, and how a list is made."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from cri_api.v1 import api_pb2

from services.dockershim.adapters.engine import Engine
from services.dockershim.controllers.images import MAX_INSPECTIONS, Images


class EngineWithImage:
    """A Docker that pulls one image."""

    async def pull(self, reference: str, auth: object) -> AsyncIterator[dict[str, Any]]:
        yield {"status": "Pulling"}

    async def image(self, reference: str) -> dict[str, Any]:
        return {"Id": "sha256:1", "RepoTags": [reference], "RepoDigests": ["registry/web@sha256:2"]}


async def test_a_pull_answers_the_id_by_which_the_status_of_the_image_names_it_too() -> None:
    images = Images(cast(Engine, EngineWithImage()), "pause:1", 60.0)
    pulled = await images.pull("registry/web:1", api_pb2.AuthConfig())
    assert pulled.image_ref == (await images.status("registry/web:1")).image.id == "sha256:1"


class EngineWithMany:
    """A Docker with many images, that answers slowly."""

    def __init__(self) -> None:
        self.under_way, self.most = 0, 0

    async def images(self) -> list[dict[str, Any]]:
        return [{"Id": f"sha256:{number}"} for number in range(10 * MAX_INSPECTIONS)]

    async def image(self, reference: str) -> dict[str, Any]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        for _ in range(3):
            await asyncio.sleep(0)
        self.under_way -= 1
        return {"Id": reference, "RepoTags": [], "RepoDigests": []}


async def test_a_list_has_few_connections_to_docker_at_once() -> None:
    engine = EngineWithMany()
    images = Images(cast(Engine, engine), "pause:1", 60.0)
    listed = await images.list(api_pb2.ImageFilter())
    assert [image.id for image in listed.images] == [f"sha256:{number}" for number in range(10 * MAX_INSPECTIONS)]
    assert engine.most == MAX_INSPECTIONS
