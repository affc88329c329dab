"""Whether the shim in front of Docker runs: the agent's own document, and the flags of the kubelet's dockershim."""

from pathlib import Path

import pytest

from shared.config.effective import Docker, EffectiveConfig
from shared.config.evaluation import evaluate
from shared.config.findings import ConfigurationRefusedError

FILE = (
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
)
OWN = "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
SOCKET = "/run/bulkhead/dockershim/dockershim.sock"


def given(tmp_path: Path, text: str, *flags: str) -> EffectiveConfig:
    file = tmp_path / "kubelet.yaml"
    file.write_text(FILE + text, encoding="utf-8")
    return evaluate([f"--config={file}", *flags]).config


def shim_of(config: EffectiveConfig) -> Docker:
    assert config.docker is not None
    return config.docker


def test_no_shim_runs_unless_it_is_asked_for(tmp_path: Path) -> None:
    for text in ("", OWN, OWN + "docker: {endpoint: 'unix:///d.sock'}\n", OWN + "docker: {enabled: false}\n"):
        assert given(tmp_path, text).docker is None
    assert given(tmp_path, OWN + "docker: {enabled: true}\n", "--container-runtime=remote").docker is None
    assert given(tmp_path, "", "--docker-endpoint=unix:///d.sock").docker is None


def test_the_defaults_are_those_of_the_kubelets_flags(tmp_path: Path) -> None:
    for config in (
        given(tmp_path, OWN + "docker: {enabled: true}\n"),
        given(tmp_path, "", "--container-runtime=docker"),
    ):
        shim = shim_of(config)
        assert (shim.endpoint, shim.cni_conf_dir) == ("unix:///var/run/docker.sock", "/etc/cni/net.d")
        assert (shim.cni_bin_dirs, shim.pull_progress_seconds) == (("/opt/cni/bin",), 60.0)
        assert (shim.socket, config.container_runtime_endpoint) == (SOCKET, f"unix://{SOCKET}")


def test_a_flag_outranks_the_section_and_paths_of_the_section_begin_at_the_file(tmp_path: Path) -> None:
    section = OWN + (
        "docker: {enabled: true, endpoint: 'unix:///a.sock', sandboxImage: pause:1, cniBinDir: bin, cniConfDir: net.d, "
        "imagePullProgressDeadline: 5m}\n"
    )
    shim = shim_of(given(tmp_path, section))
    assert (shim.endpoint, shim.sandbox_image, shim.pull_progress_seconds) == ("unix:///a.sock", "pause:1", 300.0)
    assert (shim.cni_bin_dirs, shim.cni_conf_dir) == ((f"{tmp_path}/bin",), f"{tmp_path}/net.d")
    flags = (
        "--docker-endpoint=unix:///b.sock",
        "--pod-infra-container-image=pause:2",
        "--cni-bin-dir=/x,/y",
        "--cni-conf-dir=/z",
        "--image-pull-progress-deadline=30s",
    )
    shim = shim_of(given(tmp_path, section, *flags))
    assert (shim.endpoint, shim.sandbox_image, shim.pull_progress_seconds) == ("unix:///b.sock", "pause:2", 30.0)
    assert (shim.cni_bin_dirs, shim.cni_conf_dir) == (("/x", "/y"), "/z")


@pytest.mark.parametrize(
    ("text", "flags", "line"),
    [
        ("docker: {enabled: true, endpoint: 'tcp://1.2.3.4:2375'}\n", (), "must begin with unix:///"),
        ("docker: {enabled: true, imagePullProgressDeadline: 0s}\n", (), "must be longer than 0s"),
        ("docker: {enabled: true}\nembeddedContainerd: {enabled: true}\n", (), "one container runtime"),
        ("docker: {enabled: true, socket: x}\n", (), "socket"),
        ("", ("--container-runtime=docker", "--docker-endpoint=tcp://h:1"), "must begin with unix:///"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, text: str, flags: tuple[str, ...], line: str) -> None:
    with pytest.raises(ConfigurationRefusedError) as refused:
        given(tmp_path, OWN + text, *flags)
    assert any(line in found for found in refused.value.lines), refused.value.lines
