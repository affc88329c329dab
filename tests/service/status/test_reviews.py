"""What the other processes ask the API server through status: reviews and tokens, and no secret in any log."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from bus.messages.status import (
    IssuedToken,
    RequestedPodCertificate,
    RequestPodCertificate,
    RequestToken,
    ReviewAccess,
    Reviewed,
    ReviewToken,
)
from services.frame.launch import Context
from services.status.controllers.reviews import Reviews
from tests.fakes.api_resources import NEWEST, V1_37, OlderServer
from tests.fakes.virtual_time import pass_time
from tests.service.status.cluster import Cluster

pytestmark = pytest.mark.virtual_time

SECRET = "s3cr3t-t0ken"


async def asked(cluster: Cluster, request: Any, answer: type[Any], seconds: float = 10) -> Any:
    asking = asyncio.create_task(cluster.podsync.ask("status", request, answer, timeout=60))
    await pass_time(cluster.network, seconds)
    assert asking.done()
    return asking.result()


async def test_a_token_is_reviewed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    user = {"username": "jane", "groups": ["dev"]}
    cluster.server.answer(
        "TokenReview", lambda review: {"authenticated": review["spec"]["token"] == SECRET, "user": user}
    )
    reviewed = await asked(cluster, ReviewToken(token=SECRET, audiences=("api",)), Reviewed)
    assert reviewed == Reviewed(status={"authenticated": True, "user": user})
    assert cluster.server.received[-1].body["spec"] == {"token": SECRET, "audiences": ["api"]}
    assert not (await asked(cluster, ReviewToken(token="x"), Reviewed)).status["authenticated"]
    assert cluster.server.received[-1].body["spec"] == {"token": "x"}
    await cluster.stop()


async def test_access_is_reviewed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    cluster.server.answer("SubjectAccessReview", lambda review: {"allowed": review["spec"]["user"] == "jane"})
    for user, allowed in (("jane", True), ("joe", False)):
        reviewed = await asked(cluster, ReviewAccess(spec={"user": user}), Reviewed)
        assert reviewed == Reviewed(status={"allowed": allowed})
    await cluster.stop()


async def test_a_review_is_tried_five_times_with_growing_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = Cluster(tmp_path)
    await cluster.begin()
    cluster.server.refuse(4, 500)
    assert (await asked(cluster, ReviewToken(token=SECRET), Reviewed)).error == ""
    before = len(cluster.sent())
    assert before == 5
    cluster.server.refuse(0, 500)
    asking = asyncio.create_task(cluster.podsync.ask("status", ReviewToken(token=SECRET), Reviewed, timeout=60))
    await pass_time(cluster.network, 0.5 + 0.75 + 1.125 + 1.6875 - 0.01)
    assert not asking.done()
    await pass_time(cluster.network, 0.02)
    assert (await asking) == Reviewed(status={}, error="refused with 500")
    cluster.server.up()
    cluster.server.refuse(1, 403)
    assert (await asked(cluster, ReviewToken(token=SECRET), Reviewed, 0.1)).error == "refused with 403"
    assert SECRET not in caplog.text
    await cluster.stop()


async def test_a_token_is_requested(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    token = {"serviceAccountToken": {"path": "t", "audience": "api"}}
    containers, volumes = [{"name": "c", "image": "i"}], [{"name": "t", "projected": {"sources": [token]}}]
    pod = {"metadata": {"name": "web"}, "spec": {"containers": containers, "volumes": volumes}}
    uid = cluster.server.bind(pod, "n1")["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": uid}
    spec = {"audiences": ["api"], "expirationSeconds": 3607, "boundObjectRef": bound}
    request = RequestToken(namespace="default", service_account="default", spec=spec)
    issued = await asked(cluster, request, IssuedToken)
    assert issued.token.startswith("token-") and issued.expiration and not issued.error
    assert cluster.server.received[-1].body["spec"] == spec
    unnamed = RequestToken(namespace="default", service_account="default", spec={**spec, "audiences": ["vault"]})
    assert 'audience "vault" not found in pod spec volume' in (await asked(cluster, unnamed, IssuedToken)).error
    refused = await asked(cluster, RequestToken(namespace="default", service_account="other", spec=spec), IssuedToken)
    assert refused.error and not refused.token and not refused.not_found
    cluster.server.refuse(1, 404, reason="NotFound")
    assert (await asked(cluster, request, IssuedToken)).not_found
    cluster.server.down()
    assert "connection refused" in (await asked(cluster, request, IssuedToken)).error
    await cluster.stop()


async def test_what_strangers_make_it_ask_passes_no_limit_of_the_pods(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    used: list[tuple[str, str]] = []
    for name in ("heartbeat", "kube", "tokens", "reviews", "token_reviews", "events"):

        async def create(path: str, body: Any, *, timeout: float | None = None, name: str = name) -> Any:
            used.append((name, path.rpartition("/")[2]))
            return {"status": {}}

        getattr(cluster.clients, name).create = create
    await asked(cluster, ReviewToken(token="x"), Reviewed)
    await asked(cluster, ReviewAccess(spec={}), Reviewed)
    await asked(cluster, RequestToken(namespace="default", service_account="a", spec={}), IssuedToken)
    assert used == [("token_reviews", "tokenreviews"), ("reviews", "subjectaccessreviews"), ("tokens", "token")]
    await cluster.stop()


@pytest.mark.parametrize(
    ("request_of", "answer", "most"),
    [
        (lambda number: ReviewToken(token=f"t{number}"), Reviewed, 100),
        (lambda number: ReviewAccess(spec={"user": f"u{number}"}), Reviewed, 100),
        (lambda number: RequestToken(namespace="default", service_account=f"a{number}", spec={}), IssuedToken, 500),
    ],
    ids=["tokens reviewed", "access reviewed", "tokens requested"],
)
async def test_what_is_pending_is_bounded(tmp_path: Path, request_of: Any, answer: type[Any], most: int) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    cluster.server.slow(5)
    asking = [
        asyncio.create_task(cluster.podsync.ask("status", request_of(number), answer, timeout=60))
        for number in range(most + 20)
    ]
    await pass_time(cluster.network, 1)
    refused = [task.result() for task in asking if task.done()]
    assert len(refused) == 20
    assert all(f"{most} " in one.error and "are pending already" in one.error for one in refused)
    await pass_time(cluster.network, 30)
    assert all(task.done() for task in asking)
    assert "pending" not in (await asked(cluster, request_of(0), answer, 30)).error
    await cluster.stop()


async def test_a_node_on_its_own_reports_that(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start_podsync()
    bus = cluster.network.bus("status")
    Reviews(Context("status", cluster.config, bus, cluster.network.clock, asyncio.Event()), None)
    await bus.start()
    request = RequestToken(namespace="default", service_account="default", spec={})
    assert (await asked(cluster, request, IssuedToken)).error == (
        "cannot use TokenManager when kubelet is in standalone mode"
    )
    assert "no client provided" in (await asked(cluster, ReviewToken(token="x"), Reviewed)).error


@pytest.mark.parametrize(("server", "version"), [(NEWEST, "v1beta1"), (V1_37, "v1")], ids=["1.36", "1.37"])
async def test_a_certificate_request_of_a_pod_is_created_once(
    tmp_path: Path, server: OlderServer, version: str
) -> None:
    cluster = Cluster(tmp_path, server)
    await cluster.begin()
    pod = cluster.server.bind({"metadata": {"name": "web"}, "spec": {"containers": []}}, cluster.config.node_name)
    uid = pod["metadata"]["uid"]
    spec = {"signerName": "example.com/ca", "nodeName": cluster.config.node_name, "podName": "web", "podUID": uid}
    request = RequestPodCertificate(namespace="default", name="req-1", pod="web", pod_uid=uid, spec=spec)
    for _ in range(2):  # the second finds what the first has created
        assert await asked(cluster, request, RequestedPodCertificate) == RequestedPodCertificate()
    tried = [
        each.path.split("/")[3] for each in cluster.server.received if each.path.endswith("podcertificaterequests")
    ]
    assert tried == (["v1", "v1"] if version == "v1" else ["v1", "v1beta1", "v1beta1"]), "the served version is known"
    path = f"/apis/certificates.k8s.io/{version}/namespaces/default/podcertificaterequests/req-1"
    created = cluster.server.get(path)
    assert created is not None
    assert created["spec"] == spec and created["apiVersion"] == f"certificates.k8s.io/{version}"
    owner = {"apiVersion": "core/v1", "kind": "Pod", "name": "web", "uid": uid}
    assert created["metadata"]["ownerReferences"] == [owner]
    foreign = RequestPodCertificate(
        namespace="default", name="req-2", pod="web", pod_uid=uid, spec={**spec, "nodeName": "other"}
    )
    refused = await asked(cluster, foreign, RequestedPodCertificate)
    assert "is forbidden" in refused.error
    await cluster.stop()
