"""bootstrap killed between any two steps on the way to its first certificate: one request, one key, and it gets there.

tests/process/test_csr_kills.py kills a real process at one of these points.
"""

from pathlib import Path

import pytest

from services.bootstrap.adapters import certificate_store
from services.bootstrap.adapters.certificate_forms import CertificateForms
from services.bootstrap.controllers import certificate_rotation, csr_attempt, tls_bootstrap
from tests.service.bootstrap.stage import BOOTSTRAP, Stage

pytestmark = pytest.mark.virtual_time

ROTATING = (
    "request.noted",
    "request.sent",
    "request.accepted",
    "certificate.written",
    "certificate.linked",
    "certificate.stored",
)
ONCE = (*ROTATING, "key.removed", "kubeconfig.written")


class KilledError(BaseException):
    """The process was killed at a crash point."""


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The crash points at which bootstrap is killed next, each once."""
    wanted: list[str] = []

    def crash_point(name: str) -> None:
        if name in wanted:
            wanted.remove(name)
            raise KilledError

    for module in (certificate_store, certificate_rotation, csr_attempt, tls_bootstrap):
        monkeypatch.setattr(module, "crash_point", crash_point)
    return wanted


@pytest.mark.parametrize(
    ("rotate", "point"), [*((True, point) for point in ROTATING), *((False, point) for point in ONCE)]
)
async def test_a_kill_on_the_way_to_the_first_certificate(
    stage: Stage, tmp_path: Path, points: list[str], rotate: bool, point: str
) -> None:
    begin = stage.begin if rotate else stage.begin_first
    points.append(f"bootstrap.{point}")
    await begin()
    stage.signer.serve()
    await stage.passes(2)
    assert not points, "it was never there"
    with pytest.raises(KilledError):
        await stage.kill()
    await begin()
    stage.signer.serve()
    await stage.passes(2)
    assert stage.users == [BOOTSTRAP]
    text = stage.store.current.read_text()
    assert CertificateForms().inspect(text, text).facts.organizations == ("system:nodes",)
    if not rotate:
        assert stage.is_done
        assert (tmp_path / "kubelet.conf").exists()
    assert stage.troubles == ()
    left = {path.name for path in (tmp_path / "pki").iterdir()}
    assert not {"kubelet-client-updated.pem", "kubelet-client.key.tmp"} & left
    assert [path.name for path in (tmp_path / "run").iterdir()] == []
