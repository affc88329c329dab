"""What runOnce requires of the configuration, and what it changes in it."""

from pathlib import Path

import pytest

from shared.config.evaluation import evaluate
from shared.config.findings import ConfigurationRefusedError

TEXT = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
runOnce: true
staticPodPath: /m
port: 10350
readOnlyPort: 10355
"""


def test_a_run_once_is_without_a_cluster_and_opens_no_server(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(TEXT)
    config = evaluate([f"--config={file}"]).config
    assert (config.run_once, config.run_once_output) == (True, "text")
    assert (config.enable_server, config.read_only_port) == (False, 0)
    with pytest.raises(ConfigurationRefusedError) as refused:
        evaluate([f"--config={file}", "--kubeconfig=/k"])
    expected = "runOnce: is true, and --kubeconfig is given (leave out one of them)"
    assert any(expected in line for line in refused.value.lines)


def test_a_run_once_of_a_url_needs_no_path(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(TEXT.replace("staticPodPath: /m", "staticPodURL: http://example.org/pods"))
    assert evaluate([f"--config={file}"]).config.static_pod_url == "http://example.org/pods"
