"""The client certificate without rotation: one key, one request, one kubeconfig, whatever is killed in between."""

import base64
import stat
from pathlib import Path

import pytest
import yaml

from services.bootstrap.adapters.certificate_forms import CertificateForms
from tests.service.bootstrap.stage import BOOTSTRAP, Stage

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(60)]


async def test_the_certificate_is_stored_and_then_the_kubeconfig_is_written(stage: Stage, tmp_path: Path) -> None:
    await stage.begin_first()
    key = tmp_path / "pki/kubelet-client.key.tmp"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().startswith("-----BEGIN EC PRIVATE KEY-----")
    [request] = stage.signer.open()
    assert request["metadata"]["name"].startswith("node-csr-")
    assert request["spec"]["username"] == BOOTSTRAP
    assert not (tmp_path / "kubelet.conf").exists()
    made = key.read_text()
    stage.signer.serve()
    await stage.passes(2)
    assert stage.is_done
    assert not key.exists()
    assert made in stage.store.current.read_text()
    document = yaml.safe_load((tmp_path / "kubelet.conf").read_text())
    assert document["users"][0]["user"]["client-key"] == str(stage.store.current)
    assert stat.S_IMODE((tmp_path / "kubelet.conf").stat().st_mode) == 0o600
    assert stage.troubles == ()


async def test_each_process_continues_with_the_same_request(stage: Stage) -> None:
    for _ in range(4):
        await stage.begin_first()
        await stage.kill()
    assert len(stage.signer.open()) == 1
    stage.signer.serve()
    await stage.begin_first()
    assert stage.is_done
    assert len(stage.users) == 1


async def test_killed_before_the_kubeconfig_was_written_it_asks_again_with_the_key_of_the_store(
    stage: Stage, tmp_path: Path
) -> None:
    await stage.begin_first()
    stage.signer.serve()
    await stage.passes(2)
    (tmp_path / "kubelet.conf").unlink()
    await stage.kill()
    await stage.begin_first()
    assert stage.is_done
    assert (tmp_path / "kubelet.conf").exists()
    assert len(stage.users) == 1


async def test_the_watch_for_a_request_asks_for_bookmarks_so_that_it_is_not_taken_for_dead(stage: Stage) -> None:
    await stage.begin_first()
    [watch] = [received for received in stage.server.received if received.method == "WATCH"]
    assert watch.query["allowWatchBookmarks"] == "true"
    stage.server.bookmark()
    await stage.passes(1)
    assert stage.signer.serve() == 1
    await stage.passes(1)
    assert stage.is_done


async def test_a_denied_request_is_logged_once_and_made_again_when_it_is_gone(stage: Stage) -> None:
    await stage.begin_first()
    [request] = stage.signer.open()
    stage.signer.deny(request)
    await stage.passes(200)
    assert "was denied: KubectlDeny: not one of ours" in stage.troubles[0]
    stage.signer.delete(request)
    await stage.passes(3)
    assert stage.signer.serve() == 1
    await stage.passes(2)
    assert stage.is_done


async def test_a_strangers_object_of_that_name_is_not_taken(stage: Stage) -> None:
    await stage.begin_first()
    [request] = stage.signer.open()
    await stage.kill()
    stage.signer.delete(request)
    assert stage.template
    strange = CertificateForms().make(stage.template).request.encode()
    spec = {**request["spec"], "request": base64.b64encode(strange).decode()}
    path = f"{stage.signer.path}/{request['metadata']['name']}"
    stage.server.put(path, {"metadata": {"name": request["metadata"]["name"]}, "spec": spec})
    await stage.begin_first()
    assert "is there and is not the request of our key (delete it to have it made again)" in stage.troubles[0]
    stage.server.delete(path)
    await stage.passes(3)
    assert stage.signer.serve() == 1


async def test_a_key_file_that_is_half_is_replaced(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki/kubelet-client.key.tmp").write_text("-----BEGIN EC PRI")
    await stage.begin_first()
    assert stage.signer.serve() == 1
    await stage.passes(2)
    assert stage.is_done
