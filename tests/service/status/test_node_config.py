"""status.config of our Node: what bootstrap publishes, and an API server that does not keep it."""

from pathlib import Path

import pytest

from bus.messages.bootstrap import NodeConfigStatus
from bus.messages.pleg import NodeImage, NodeImages
from shared.model.config_source import ConfigSource
from tests.fakes.api_resources import OlderServer
from tests.service.status.node_stage import NODE, node_stage

pytestmark = pytest.mark.virtual_time

SOURCE = ConfigSource(namespace="ns", name="a", uid="u", resource_version="7", kubelet_config_key="kubelet")


async def test_the_configuration_that_the_node_names_is_shown_at_once(tmp_path: Path) -> None:
    async with node_stage(tmp_path, dynamic_config_dir="/d") as stage:
        await stage.start()
        await stage.pass_time(30)
        assert "config" not in stage.node["status"]
        stage.node_config.put("node", NodeConfigStatus(assigned=SOURCE, error="why"))
        await stage.pass_time(1)
        assert stage.node["status"]["config"] == {"assigned": SOURCE.as_object(), "error": "why"}
        stage.node_config.put("node", NodeConfigStatus())
        await stage.pass_time(1)
        assert stage.node["status"]["config"] == {}


async def test_an_api_server_without_dynamic_configuration_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newer = OlderServer(fields={"Node": ("status.config",)})
    async with node_stage(tmp_path, drops=newer, dynamic_config_dir="/d") as stage:
        stage.node_config.put("node", NodeConfigStatus())
        await stage.start()
        await stage.pass_time(30)
        asked = len(stage.api.requests)
        await stage.pass_time(250)
        assert stage.node_requests(asked) == []
        stage.images.put("node", NodeImages(images=(NodeImage(id="j", names=("b:1",), size_bytes=6),)))
        await stage.pass_time(30)
        assert stage.node_requests(asked) == [("PATCH", f"{NODE}/status")]
    assert caplog.text.count("the API server has no dynamic configuration of nodes") == 1
