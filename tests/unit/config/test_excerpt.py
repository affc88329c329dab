"""The fields of config.json that commands read without the configuration's types."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from shared.config.effective import EffectiveConfig
from shared.config.excerpt import CONFIG_NAME, load_excerpt
from shared.config.loader import encode_effective, load_effective
from shared.errors import OperatorError
from shared.model.frozen_copy import replace

CONFIG = EffectiveConfig(node_name="größe", root_dir="/k", run_dir="/r", log_dir="/l\udc80", cert_dir="/c")


@pytest.mark.parametrize("kubeconfig", ["", "/etc/kubelet.conf"])
def test_its_values_are_those_of_the_whole_configuration(tmp_path: Path, kubeconfig: str) -> None:
    config = replace(CONFIG, kubeconfig=kubeconfig, container_runtime_endpoint="unix:///r.sock")
    (tmp_path / CONFIG_NAME).write_bytes(encode_effective(config, "1"))
    found = load_excerpt(str(tmp_path))
    assert {name: getattr(config, name) for name in asdict(found)} == asdict(found)
    assert found.joins_cluster is config.joins_cluster


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"version": 2, "config": {}}',
        b'{"version": 1}',
        b'{"version": 1, "config": []}',
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_for_both_readers(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CONFIG_NAME).write_bytes(content)
    for load in (load_excerpt, load_effective):
        with pytest.raises(OperatorError, match=r"config.json: cannot be used: [^\n]+ \(restart bootstrap; "):
            load(str(tmp_path))


def test_a_field_of_another_type_is_named(tmp_path: Path) -> None:
    envelope: dict[str, Any] = json.loads(encode_effective(CONFIG, ""))
    envelope["config"]["log_dir"] = 5
    (tmp_path / CONFIG_NAME).write_bytes(json.dumps(envelope).encode())
    with pytest.raises(OperatorError, match="log_dir is no text"):
        load_excerpt(str(tmp_path))
