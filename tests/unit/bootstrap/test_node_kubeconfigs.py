"""Kubeconfig, bootstrap kubeconfig and store together: what the node uses, asks with, and waits for."""

import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.bootstrap.adapters import node_credentials
from services.bootstrap.adapters.kubeconfig import KubeconfigReport, resolve, resolve_in_child
from services.bootstrap.adapters.node_credentials import (
    client_store,
    inspect_client,
    resolve_ordinary,
    resolve_requesting,
    write_kubeconfig,
)
from services.bootstrap.core.client_plan import ClientPlan
from shared.config.effective import EffectiveConfig
from shared.model.frozen_copy import replace
from tests.unit.bootstrap.kubeconfigs import encoded, inline, kubeconfig, write
from tests.unit.kube.tls_world import Authority, write_pair

CA = Authority()
VALID, OTHER, EXPIRED = CA.issue("system:node:a"), CA.issue("system:node:a"), CA.issue("system:node:a", ends_in=-60)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EffectiveConfig:
    def here(path: str, *, timeout: int = 30, **more: Any) -> KubeconfigReport:
        return resolve(path, timeout=timeout, **more)

    monkeypatch.setattr(node_credentials, "resolve_in_child", here)  # what a child does, without one
    return EffectiveConfig(
        node_name="a",
        root_dir="",
        run_dir=str(tmp_path),
        log_dir="",
        cert_dir=str(tmp_path / "pki"),
        kubeconfig=str(tmp_path / "kubelet.conf"),
    )


def bootstrapping(config: EffectiveConfig, *, rotate: bool) -> EffectiveConfig:
    """The same with a bootstrap kubeconfig that is good."""
    path = Path(config.run_dir) / "bootstrap.conf"
    write(path, kubeconfig({"token": "b00t"}))
    return replace(config, bootstrap_kubeconfig=str(path), rotate_certificates=rotate)


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize(
    ("user", "still_valid"),
    [
        (None, False),
        ({"token": "t0p"}, False),
        (inline(VALID), True),
        (inline(EXPIRED), False),
        ({**inline(VALID), "client-key-data": encoded(OTHER.key)}, False),
        ({**inline(VALID), "client-certificate-data": encoded(VALID.certificate + EXPIRED.certificate)}, False),
        ({"client-certificate": "no.pem", "client-key": "no.pem"}, False),
        ({"client-certificate-data": "%", "client-key-data": "%"}, False),
    ],
)
def test_when_a_kubeconfig_is_still_valid(
    config: EffectiveConfig, user: dict[str, Any] | None, still_valid: bool, rotate: bool
) -> None:
    if user is not None:
        write(Path(config.kubeconfig), kubeconfig(user))
    look = inspect_client(bootstrapping(config, rotate=rotate), time.time())
    bootstraps = look.plan in (ClientPlan.BOOTSTRAP_ONCE, ClientPlan.BOOTSTRAP_MANAGED)
    assert bootstraps is not still_valid
    assert look.refusal is None
    assert (look.bootstrap is None) is still_valid
    assert look.report.awaited is (bootstraps or rotate)


def test_a_kubeconfig_that_cannot_be_opened_is_refused_and_not_replaced(config: EffectiveConfig) -> None:
    Path(config.kubeconfig).mkdir()
    look = inspect_client(bootstrapping(config, rotate=True), time.time())
    assert look.refusal is not None
    assert "cannot be read: Is a directory" in look.refusal.problems[0]
    assert look.bootstrap is None


@pytest.mark.parametrize("rotate", [False, True])
def test_a_look_that_did_not_end_replaces_nothing(
    config: EffectiveConfig, rotate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory runs out, nothing is known of a kubeconfig: it is neither replaced nor requested."""
    write(Path(config.kubeconfig), kubeconfig(inline(VALID)))

    def starved(*_: Any, **__: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(node_credentials, "resolve_in_child", resolve_in_child)
    monkeypatch.setattr(subprocess, "Popen", starved)
    look = inspect_client(bootstrapping(config, rotate=rotate), time.time())
    assert look.plan is (ClientPlan.MANAGED if rotate else ClientPlan.AS_IS)
    assert look.refusal is not None
    assert "the check failed: OSError" in look.refusal.problems[0]
    assert look.bootstrap is None


def test_what_is_wrong_with_a_replaced_kubeconfig_is_logged(config: EffectiveConfig) -> None:
    Path(config.kubeconfig).write_text("clusters: 5")
    look = inspect_client(bootstrapping(config, rotate=False), time.time())
    assert look.plan is ClientPlan.BOOTSTRAP_ONCE
    assert look.report.awaited
    [line] = look.report.problems
    assert line.startswith(f"--kubeconfig: {config.kubeconfig}: current-context is missing")
    assert line.endswith("; a start asks for a certificate with --bootstrap-kubeconfig")


def test_with_rotation_the_managed_pair_takes_the_place_of_everything(config: EffectiveConfig) -> None:
    config = replace(config, rotate_certificates=True)
    write(Path(config.kubeconfig), kubeconfig({"token": "t0p"}))
    assert resolve_ordinary(config, time.time()).awaited
    Path(config.cert_dir).mkdir()
    file = Path(config.cert_dir) / "kubelet-client-1.pem"
    file.write_bytes(VALID.certificate + VALID.key)
    client_store(config).current.symlink_to(file)
    report = resolve_ordinary(config, time.time())
    assert report.material is not None
    assert (report.material.token, report.material.server) == ("", "https://127.0.0.1:6443")
    assert VALID.certificate.decode() in report.material.certificate
    assert str(client_store(config).current) in report.files
    file.write_bytes(EXPIRED.certificate + EXPIRED.key)
    report = resolve_ordinary(config, time.time())
    assert report.awaited
    assert f"--cert-dir: {client_store(config).current}: client-certificate has expired on" in report.problems[0]
    file.write_bytes(VALID.certificate + OTHER.key)
    report = resolve_ordinary(config, time.time())
    assert not report.awaited
    assert "client-key is not the key of client-certificate" in report.problems[0]


def test_a_kubeconfig_whose_own_certificate_is_missing_is_refused_where_nothing_else_could_ask(
    config: EffectiveConfig,
) -> None:
    config = replace(config, rotate_certificates=True)
    write(Path(config.kubeconfig), kubeconfig({"client-certificate": "no.pem", "client-key": "no.pem"}))
    look = inspect_client(config, time.time())
    assert look.refusal is not None
    assert "no.pem cannot be read: No such file" in look.refusal.problems[0]


@pytest.mark.parametrize(
    ("user", "bootstrap_first", "token"),
    [
        (None, False, "b00t"),
        (inline(EXPIRED), False, "b00t"),
        (inline(VALID), False, ""),
        (inline(VALID), True, "b00t"),
    ],
)
def test_as_whom_is_asked(
    config: EffectiveConfig, user: dict[str, Any] | None, bootstrap_first: bool, token: str
) -> None:
    if user is not None:
        write(Path(config.kubeconfig), kubeconfig(user))
    config = bootstrapping(config, rotate=True)
    material = resolve_requesting(config, time.time(), bootstrap_first=bootstrap_first).material
    assert material is not None
    assert material.token == token


def test_the_kubeconfig_is_written_with_its_directories(config: EffectiveConfig, tmp_path: Path) -> None:
    config = replace(bootstrapping(config, rotate=True), kubeconfig=str(tmp_path / "a/b/kubelet.conf"))
    write_pair(VALID, tmp_path, "ca")
    write(Path(config.bootstrap_kubeconfig), kubeconfig({"token": "b00t"}, **{"certificate-authority": "ca.crt"}))
    look = inspect_client(config, time.time())
    assert look.bootstrap is not None
    write_kubeconfig(config, look.bootstrap)
    path = tmp_path / "a/b/kubelet.conf"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
    [inner] = [one["cluster"] for one in yaml.safe_load(path.read_text())["clusters"]]
    assert inner == {"server": "https://127.0.0.1:6443", "certificate-authority": str(tmp_path / "ca.crt")}
    assert "b00t" not in path.read_text()
