"""What a pull answers."""

from collections.abc import AsyncIterator
from typing import Any, cast

from cri_api.v1 import api_pb2

from services.dockershim.adapters.engine import Engine
from services.dockershim.controllers.images import Images


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
