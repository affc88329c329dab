"""The client certificate with rotation: the first one, the next one, and everything that keeps one from coming."""

import base64
import math
from pathlib import Path

import pytest

from services.bootstrap.adapters.certificate_forms import CertificateForms, InspectedPair
from tests.fakes.api_resources import V1_18, V1_20
from tests.fakes.virtual_time import until
from tests.service.bootstrap.stage import BOOTSTRAP, NODE, Stage

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(60)]


def held(stage: Stage) -> InspectedPair:
    text = stage.store.current.read_text()
    return CertificateForms().inspect(text, text)


@pytest.mark.long
async def test_the_first_certificate_is_asked_for_with_the_bootstrap_credentials(stage: Stage, tmp_path: Path) -> None:
    await stage.begin()
    [request] = stage.signer.open()
    assert request["spec"]["username"] == BOOTSTRAP
    assert request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
    assert request["spec"]["usages"] == ["digital signature", "client auth"]
    name = request["metadata"]["name"]
    assert [f"client certificate: {name} waits for approval (kubectl certificate approve {name})"] == [*stage.troubles]
    stage.signer.serve()
    await stage.passes(2)
    assert held(stage).facts.common_name == "system:node:n1"
    assert held(stage).facts.organizations == ("system:nodes",)
    assert stage.troubles == ()
    assert [path.name for path in (tmp_path / "run").iterdir()] == []
    await stage.passes(600)
    assert len(stage.users) == 1


@pytest.mark.long
async def test_the_next_one_is_asked_for_by_the_present_one_at_70_to_90_percent(stage: Stage, tmp_path: Path) -> None:
    stage.signer.lifetime, stage.signer.backdate = 1000.0, 0.0
    await stage.begin()
    stage.signer.serve()
    await stage.passes(1)
    first = held(stage)
    assert stage.users == [BOOTSTRAP]
    assert await until(stage.network, lambda: len(stage.users) == 2, 910) > 690
    assert stage.users == [BOOTSTRAP, NODE]
    stage.signer.serve()
    await stage.passes(1)
    assert held(stage).facts.not_after > first.facts.not_after
    assert held(stage).key != first.key
    assert len(list((tmp_path / "pki").glob("kubelet-client-2*.pem"))) == 2


@pytest.mark.long
async def test_a_forced_rotation_asks_at_once_and_only_once(stage: Stage) -> None:
    await stage.begin()
    stage.signer.serve()
    await stage.passes(1)
    await stage.kill()
    await stage.begin()
    assert not stage.signer.open()
    await stage.kill()
    await stage.begin(forced=True)
    assert stage.signer.serve() == 1
    await stage.passes(600)
    assert stage.users == [BOOTSTRAP, NODE]


@pytest.mark.long
async def test_a_certificate_that_ended_falls_back_to_the_bootstrap_credentials(stage: Stage) -> None:
    stage.signer.lifetime, stage.signer.backdate = 1000.0, 0.0
    await stage.begin()
    stage.signer.serve()
    await stage.passes(1)
    stage.server.down()
    await stage.passes(2000)
    assert [line for line in stage.troubles if line.startswith("client certificate: ")]
    stage.server.up()
    await stage.passes(9)
    assert stage.users == [BOOTSTRAP, BOOTSTRAP]
    stage.signer.serve()
    await stage.passes(1)
    assert stage.troubles == ()


async def test_one_that_the_api_server_does_not_know_makes_way_too(stage: Stage) -> None:
    await stage.begin()
    stage.signer.serve()
    await stage.passes(1)
    await stage.kill()
    stage.server.refuse(2, 401)  # the version, which may be forbidden, and the request
    await stage.begin(forced=True)
    assert "are not known to the API server" in stage.troubles[0]
    await stage.passes(3)
    assert stage.users == [BOOTSTRAP, BOOTSTRAP]


@pytest.mark.long
@pytest.mark.parametrize("answer", ["deny", "fail"])
async def test_a_denial_is_logged_once_and_not_repeated_until_the_request_is_removed(stage: Stage, answer: str) -> None:
    await stage.begin()
    [request] = stage.signer.open()
    getattr(stage.signer, answer)(request, "not one\nof ours")
    await stage.passes(2)
    name = request["metadata"]["name"]
    what, reason = {
        "deny": ("was denied", "KubectlDeny"),
        "fail": ("failed at its signer", "SignerValidationFailure"),
    }[answer]
    line = f"client certificate: {name} {what}: {reason}: not one of ours (delete it to be asked again at once)"
    assert [*stage.troubles] == [line]
    await stage.passes(200)
    await stage.kill()
    await stage.begin()  # nor after a restart
    await stage.passes(200)
    assert len(stage.users) == 1
    stage.signer.delete(request)
    await stage.passes(3)
    assert stage.signer.serve() == 1
    await stage.passes(3)
    assert stage.troubles == ()


async def test_after_a_long_time_a_denied_certificate_is_requested_again(stage: Stage) -> None:
    await stage.begin()
    stage.signer.deny(stage.signer.open()[0])
    await stage.passes(310)
    assert len(stage.users) == 2


@pytest.mark.long
async def test_a_request_without_an_answer_is_made_again_with_another_key(stage: Stage) -> None:
    await stage.begin()
    await stage.passes(890)
    assert len(stage.users) == 1
    await stage.passes(20)
    first, second = stage.signer.requests()
    assert first["spec"]["request"] != second["spec"]["request"]
    stage.signer.serve()
    await stage.passes(3)
    assert stage.troubles == ()


async def test_a_deleted_request_is_made_again(stage: Stage) -> None:
    await stage.begin()
    stage.signer.delete(stage.signer.open()[0])
    await stage.passes(5)
    assert stage.signer.serve() == 1
    await stage.passes(3)
    assert stage.troubles == ()


async def test_a_killed_bootstrap_takes_up_the_request_it_made(stage: Stage) -> None:
    for _ in range(5):
        await stage.begin()
        await stage.kill()
    [request] = stage.signer.open()
    await stage.begin()
    stage.signer.serve()
    await stage.passes(2)
    assert len(stage.users) == 1
    assert held(stage).facts.common_name == "system:node:n1"
    assert request["metadata"]["name"].startswith("csr-")


async def test_a_request_whose_answer_was_lost_is_not_made_twice(stage: Stage) -> None:
    stage.server.lose_answers(2)  # to the version, and to the creation
    await stage.begin()
    await stage.passes(10)
    assert stage.signer.serve() == 1
    await stage.passes(2)
    assert len(stage.users) == 1
    assert stage.troubles == ()


async def test_a_request_begun_for_another_subject_is_not_taken_up(stage: Stage) -> None:
    await stage.begin()
    await stage.kill()
    assert stage.template
    stage.template = type(stage.template)(signer="kubernetes.io/other", common_name="x", purpose="client auth")
    await stage.begin()
    await stage.passes(
        3
    )  # the name was taken, by what was begun before: the random numbers are the same in each process
    assert [csr["spec"]["signerName"].partition("/")[2] for csr in stage.signer.requests()] == [
        "kube-apiserver-client-kubelet",
        "other",
    ]


@pytest.mark.long
@pytest.mark.parametrize("text", ["", "no pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
async def test_an_answer_that_is_no_certificate_is_logged_and_not_stored(stage: Stage, text: str) -> None:
    await stage.begin()
    [request] = stage.signer.open()
    stage.signer.approve(request)
    await stage.passes(1)
    assert "is approved and waits for its signer" in stage.troubles[0]
    stage.signer.issue(request, certificate=text or stage.signer.sign(request).replace("A", "B"))
    await stage.passes(2)
    assert "was answered by what cannot be used: holds no PEM certificate" in stage.troubles[0]
    assert not stage.store.current.exists()
    await stage.passes(250)
    assert len(stage.users) == 1


async def test_the_certificate_of_another_key_is_not_stored(tmp_path: Path) -> None:
    stage, other = Stage(tmp_path), CertificateForms()
    await stage.begin()
    [request] = stage.signer.open()
    stage.signer.approve(request)
    assert stage.template
    strange = other.make(stage.template).request.encode()
    spec = {**request["spec"], "request": base64.b64encode(strange).decode()}
    stage.signer.issue(request, certificate=stage.signer.sign({**request, "spec": spec}))
    await stage.passes(2)
    assert "the key is not the key of the certificate" in stage.troubles[0]
    assert not stage.store.current.exists()


async def test_certificates_without_a_lifetime_are_not_requested_without_end(stage: Stage) -> None:
    stage.signer.lifetime = -10.0
    await stage.begin()
    for _ in range(200):
        stage.signer.serve()
        await stage.passes(1)
    assert len(stage.users) == 1
    assert "was answered by a certificate that ended on" in stage.troubles[0]


@pytest.mark.long
async def test_within_ten_seconds_of_the_api_servers_return_the_request_is_there(stage: Stage) -> None:
    stage.server.down()
    await stage.begin()
    await stage.passes(300)
    assert len(stage.server.received) == 0
    stage.server.up()
    await stage.passes(10)
    assert len(stage.signer.open()) == 1


async def test_forbidden_is_logged_with_what_to_allow(stage: Stage) -> None:
    stage.server.refuse(0, 403)
    await stage.begin()
    await stage.passes(120)
    assert "(allow it: the ClusterRole system:node-bootstrapper)" in stage.troubles[0]
    tries = len(stage.server.received)
    assert 8 <= tries <= 20  # 2, 4, 8, 16, and then every 32 s; two requests each
    stage.server.up()
    await stage.passes(33)
    assert stage.signer.serve() == 1


async def test_a_node_that_may_not_read_for_a_while_makes_no_second_request(stage: Stage) -> None:
    await stage.begin()
    stage.server.refuse(0, 403)
    stage.server.drop_watches()
    await stage.passes(60)
    assert "(allow it: the ClusterRole system:node-bootstrapper)" in stage.troubles[0]
    stage.server.up()
    stage.signer.serve()
    await stage.passes(40)
    assert len(stage.users) == 1
    assert held(stage).facts.common_name == "system:node:n1"


async def test_older_signers_get_the_usage_they_demand(tmp_path: Path) -> None:
    stage = Stage(tmp_path, drops=V1_20)
    await stage.begin()
    [request] = stage.signer.open()
    assert request["spec"]["usages"] == ["digital signature", "key encipherment", "client auth"]


async def test_a_server_without_v1_is_asked_by_v1beta1(tmp_path: Path) -> None:
    stage = Stage(tmp_path, drops=V1_18, version="v1beta1")
    await stage.begin()
    stage.signer.serve()
    await stage.passes(2)
    assert held(stage).facts.common_name == "system:node:n1"


async def test_a_corrupt_current_certificate_is_a_clear_line_until_it_is_repaired(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    stage.store.current.write_text("half")
    await stage.begin()
    path = stage.store.current
    remedy = "replace it, or remove it to have another certificate asked for"
    assert stage.troubles == (f"client certificate: {path}: holds no PEM certificate ({remedy})",)
    assert not stage.users
    stage.store.current.unlink()
    await stage.passes(31)
    assert len(stage.users) == 1


async def test_a_file_where_the_link_should_be_is_a_clear_line(stage: Stage) -> None:
    await stage.begin()
    stage.signer.serve()
    await stage.passes(1)
    text = stage.store.current.read_text()
    stage.store.current.unlink()
    stage.store.current.write_text(text)
    await stage.kill()
    await stage.begin(forced=True)
    stage.signer.serve()
    await stage.passes(1)
    assert stage.troubles == (f"client certificate: {stage.store.current}: is a file and not a link (move it away)",)
    assert stage.store.current.read_text() == text


@pytest.mark.long
async def test_the_time_that_is_left_and_failed_requests_are_measured(tmp_path: Path) -> None:
    def counted(name: str) -> float:
        [values] = [series[()] for family, series in stage.metrics.collect() if family.name == name]
        return values[0]

    ttl, errors = (f"kubelet_certificate_manager_client_{name}" for name in ("ttl_seconds", "expiration_renew_errors"))
    stage = Stage(tmp_path)
    stage.signer.lifetime, stage.signer.backdate = 1000.0, 0.0
    await stage.begin()
    assert (counted(ttl), counted(errors)) == (math.inf, 0)
    stage.signer.serve()
    await stage.passes(1)
    assert 900 < counted(ttl) <= 1000
    stage.server.down()
    await stage.passes(2000)
    assert counted(ttl) < 0
    assert counted(errors) > 0
