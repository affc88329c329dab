"""Odd answers of an API server, or of a program in its place: bootstrap keeps running, repeats, and not too often."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.bootstrap.adapters.certificate_forms import CertificateForms
from services.bootstrap.adapters.credential_files import CredentialFiles
from services.bootstrap.adapters.kubeconfig import KubeconfigReport
from services.bootstrap.adapters.pending_request import PendingFile
from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from services.bootstrap.core.certificate_template import CertificateFacts, client_template
from shared.kube.credentials import credentials_path
from shared.kube.interface import ApiClient, ApiStatusError
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from tests.service.bootstrap.stage import BOOTSTRAP, NODE, REPORT, Stage

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(60)]


class Between:
    """A proxy: what is created arrives, and what comes back is `created`; lists are answered by `listed`."""

    def __init__(self, client: ApiClient, created: Object | None = None, listed: Object | None = None) -> None:
        self._client, self._created, self._listed = client, created, listed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def create(self, path: str, body: Object, **more: Any) -> Object:
        found = await self._client.create(path, body, **more)
        return found if self._created is None else self._created

    async def get(self, path: str, query: Mapping[str, str] | None = None, **more: Any) -> Object:
        found = await self._client.get(path, query, **more)
        return found if self._listed is None or "items" not in found else self._listed


def put_between(stage: Stage, created: Object | None = None, listed: Object | None = None) -> None:
    """From the next process on."""
    connect = stage._connect
    stage._connect = lambda run_dir: Between(connect(run_dir), created, listed)  # type: ignore[method-assign]


@pytest.mark.share(4)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("created", "listed"),
    [
        ({}, None),
        ({"kind": "Status", "status": "Success"}, None),
        ({"metadata": {"name": "x"}}, None),
        (None, {"items": 5}),
        (None, {"items": [5]}),
        (None, {"items": [{"metadata": {"name": "x", "uid": "y"}, "status": {"conditions": 7}}]}),
        (None, {"items": [], "metadata": 5}),
        (None, {"kind": "Status", "status": "Success"}),
    ],
)
async def test_an_answer_of_another_shape_is_waited_out(
    stage: Stage, created: Object | None, listed: Object | None, first: bool
) -> None:
    connect = stage._connect
    put_between(stage, created, listed)
    await (stage.begin_first() if first else stage.begin())
    await stage.passes(120)
    assert len(stage.users) == 1
    if listed is not None:
        assert "could not be looked at: the answer is no" in stage.troubles[0]
    await stage.kill()
    stage._connect = connect  # type: ignore[method-assign]
    await (stage.begin_first() if first else stage.begin())
    stage.signer.serve()
    await stage.passes(40)
    assert stage.store.current.exists()
    assert len(stage.users) == 1


@pytest.mark.parametrize("vanished", [True, False], ids=["no bootstrap kubeconfig", "a token that has ended"])
async def test_a_passing_401_does_not_keep_the_node_from_asking_as_itself(stage: Stage, vanished: bool) -> None:
    await stage.begin()
    stage.signer.serve()
    await stage.passes(1)
    await stage.kill()
    connect = stage._connect
    if vanished:
        stage._resolve = lambda *_, **__: KubeconfigReport(problems=("cannot be read",))  # type: ignore[method-assign]
    else:
        stage._connect = lambda run_dir: Refusing() if run_dir.name == "requesting" else connect(run_dir)  # type: ignore
    stage.server.refuse(2, 401)  # the version and the request
    await stage.begin(forced=True)
    assert "are not known to the API server" in stage.troubles[0]
    await stage.passes(30)
    assert stage.users == [BOOTSTRAP, NODE]


class Refusing:
    """An API server that does not know who asks."""

    async def get(self, *_: Any, **__: Any) -> Object:
        raise ApiStatusError(401, "Unauthorized", "Unauthorized")

    create = get

    async def close(self) -> None:
        """Nothing to close."""


async def test_a_store_that_was_lost_is_filled_by_whatever_is_in_force(tmp_path: Path) -> None:
    """The bootstrap kubeconfig is long gone, but services have a certificate."""
    stage = Stage(tmp_path, rotate_certificates=True)
    stage._resolve = lambda *_, **__: KubeconfigReport(problems=("cannot be read",))  # type: ignore[method-assign]
    await stage.begin()
    assert stage.users == []
    assert stage.troubles == ("client certificate: cannot be read",)
    await stage.kill()
    run_dir = Path(stage.config.run_dir)
    path = credentials_path(run_dir)
    path.parent.mkdir()
    made = CertificateForms().make(client_template("n1"))
    CredentialFiles(run_dir).put(ResolvedCredentials(server="https://api:6443", certificate="PEM", key=made.key))
    await stage.begin()
    assert stage.users == [NODE]


@pytest.mark.long
@pytest.mark.share(3)
@pytest.mark.parametrize(("lifetime", "most"), [(60.0, 61), (600.0, 10), (30.0, 7)])
async def test_short_certificates_follow_each_other_without_a_gap_and_without_a_storm(
    stage: Stage, lifetime: float, most: int
) -> None:
    stage.signer.lifetime = lifetime  # that begins 300 s ago: it may be due as it comes
    await stage.begin()
    without = 0
    for _ in range(180):
        stage.signer.serve()
        await stage.passes(10)
        text = stage.store.current.read_text()
        facts: CertificateFacts = CertificateForms().inspect(text, text).facts
        without += facts.not_after < stage.network.clock.wall()
    assert len(stage.users) <= most
    assert without == 0 or lifetime < 40


async def test_a_good_certificate_does_not_make_way_for_one_without_all_that_was_asked_for(stage: Stage) -> None:
    await stage.begin()
    stage.signer.serve()
    await stage.passes(1)
    before = stage.store.current.read_text()
    await stage.kill()
    await stage.begin(forced=True)
    [request] = stage.signer.open()
    forms = CertificateForms()
    pending = PendingFile(Path(stage.config.run_dir) / "client-certificate.pending").read()
    assert pending is not None
    other = forms.make(client_template("n2"), pending.key).request
    foreign = stage.signer.sign({"spec": {"request": base64.b64encode(other.encode()).decode()}})
    stage.signer.approve(request)
    stage.signer.issue(request, certificate=foreign)
    await stage.passes(60)
    assert stage.store.current.read_text() == before
    assert "without all that was asked for (look at the signer); the present one stays" in stage.troubles[0]
    assert len(stage.users) == 2


async def test_the_kubeconfig_names_the_cluster_that_gave_the_certificate(stage: Stage) -> None:
    """The bootstrap kubeconfig was replaced while the request waited."""
    await stage.begin_first()
    stage.bootstrap = KubeconfigReport(cluster={"server": "https://other:6443"})
    stage.signer.serve()
    await stage.passes(5)
    assert stage.is_done
    [cluster] = yaml.safe_load(Path(stage.config.kubeconfig).read_text())["clusters"]
    assert cluster["cluster"]["server"] == "https://other:6443"


async def test_a_bootstrap_kubeconfig_that_has_gone_meanwhile_is_remembered(stage: Stage) -> None:
    await stage.begin_first()
    stage.bootstrap = KubeconfigReport(problems=("cannot be read",))
    stage.signer.serve()
    await stage.passes(5)
    assert stage.is_done
    [cluster] = yaml.safe_load(Path(stage.config.kubeconfig).read_text())["clusters"]
    assert cluster["cluster"] == REPORT.cluster


async def test_a_file_that_cannot_be_removed_ends_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.begin()
    [request] = stage.signer.open()

    def remove(_: PendingFile) -> None:
        raise OSError(30, "Read-only file system", "x.pending")

    monkeypatch.setattr(PendingFile, "remove", remove)
    stage.signer.deny(request)
    await stage.passes(400)
    assert stage._task is not None
    assert not stage._task.done()
    monkeypatch.undo()
    stage.signer.delete_all()
    await stage.passes(120)
    stage.signer.serve()
    await stage.passes(60)
    assert stage.store.current.exists()


async def test_a_clock_that_was_set_back_makes_no_wait_longer(stage: Stage) -> None:
    await stage.begin()
    await stage.kill()
    file = PendingFile(Path(stage.config.run_dir) / "client-certificate.pending")
    pending = file.read()
    assert pending is not None
    file.write(replace(pending, until=pending.until + 86400.0))  # by the clock of that time
    await stage.begin()
    assert len(stage.users) == 1
    await stage.passes(910)
    assert len(stage.users) == 2


async def test_a_bootstrap_kubeconfig_without_a_cluster_fills_no_store(stage: Stage, tmp_path: Path) -> None:
    stage.bootstrap = KubeconfigReport()  # as from a pod's service account
    await stage.begin_first()
    for _ in range(20):
        stage.signer.serve()
        await stage.passes(10)
    assert "the bootstrap kubeconfig named no cluster" in stage.troubles[0]
    assert [path.name for path in (tmp_path / "pki").iterdir()] == ["kubelet-client.key.tmp"]
