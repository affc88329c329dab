"""Credentials are followed: one that has expired is noticed by the wall clock, and at once when the API server answers
401; a kubeconfig that is gone before it is watched is noticed, too."""

import asyncio
import math
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bus.messages.bootstrap import CredentialsRenewal, RenewCredentials
from services.bootstrap.adapters.credential_files import CredentialFiles
from services.bootstrap.adapters.kubeconfig import KubeconfigReport
from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from services.bootstrap.controllers import kubeconfig_follower
from services.bootstrap.controllers.kubeconfig_follower import KubeconfigFollower
from services.bootstrap.controllers.startup import BootstrapStartup
from services.frame.launch import Context
from services.frame.resumption import Resumption
from shared.config.effective import EffectiveConfig
from shared.model.frozen_copy import replace
from tests.fakes.virtual_time import AtOnce, ended, until
from tests.service.bootstrap.stage import BOOTSTRAP, REPORT, Stage

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(("by", "within"), [("nothing", 10.0), ("a 401", 0.0), ("the resumption", 0.0)])
async def test_one_that_ended_while_the_machine_slept_is_noticed_soon_and_at_a_401_or_a_resumption_at_once(
    stage: Stage, by: str, within: float
) -> None:
    """The monotonic clock does not count the time of a suspend or a step of the wall clock."""
    stage.signer.lifetime, stage.signer.backdate = 100_000.0, 0.0
    await stage.begin()
    stage.signer.serve()
    await stage.passes(25)
    stage.network.clock.suspend(200_000.0)
    if by == "a 401":
        stage.keeper.wake()
    elif by == "the resumption":
        stage.resumption.look()
    await until(stage.network, lambda: len(stage.users) == 2, within)
    assert stage.users == [BOOTSTRAP, BOOTSTRAP]


async def test_a_401_to_the_credentials_in_force_reaches_the_rotation_and_one_to_older_ones_does_not(
    stage: Stage, tmp_path: Path
) -> None:
    files = CredentialFiles(tmp_path / "in force")
    files.prepare()
    files.put(ResolvedCredentials(server="https://api:6443", token="t0p"))
    present = files.present()
    assert present is not None
    startup = SimpleNamespace(credentials=SimpleNamespace(report=REPORT, files=files), evaluated_at=0.0)
    bus, status = stage.network.bus("bootstrap"), stage.network.bus("status")
    context = Context("bootstrap", stage.config, bus, stage.network.clock, asyncio.Event())
    looked: list[int] = []
    KubeconfigFollower(context, cast("BootstrapStartup", startup), lambda: looked.append(1))
    asyncio.get_running_loop().set_default_executor(AtOnce())
    await bus.start()
    await status.start()
    for version in (present.version + 1, present.version):
        assert looked == []
        asking = asyncio.create_task(
            status.ask("bootstrap", RenewCredentials(version=version), CredentialsRenewal, 10.0)
        )
        await stage.passes(1)
        assert not asking.result().due
    assert looked == [1]


async def test_credentials_that_a_plugin_gave_are_renewed_at_once_after_a_suspension_of_the_machine(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CredentialFiles(tmp_path / "in force")
    files.prepare()
    ends = replace(REPORT, plugin=True, expires_at=stage.network.clock.wall() + 3600)
    startup = SimpleNamespace(credentials=SimpleNamespace(report=ends, files=files), evaluated_at=math.inf)
    runs: list[float] = []

    def run_plugin(config: EffectiveConfig, wall: float) -> KubeconfigReport:
        runs.append(wall)
        return replace(ends, expires_at=wall + 3600)

    monkeypatch.setattr(kubeconfig_follower, "resolve_ordinary", run_plugin)
    asyncio.get_running_loop().set_default_executor(AtOnce())
    clock, bus = stage.network.clock, stage.network.bus("bootstrap")
    resumption = Resumption(lambda: clock.suspended)
    context = Context("bootstrap", stage.config, bus, clock, asyncio.Event(), resumption=resumption)
    follower = KubeconfigFollower(context, cast("BootstrapStartup", startup), lambda: None)
    await bus.start()
    following = asyncio.create_task(follower.run())
    await stage.passes(60)
    assert runs == []
    clock.suspend(8 * 3600)
    resumption.look()
    resumed_at = clock.wall()
    await stage.passes(1)
    assert len(runs) == 1 and runs[0] - resumed_at <= 1
    await ended(following)


@pytest.mark.parametrize("gone", ["the file", "its directory"])
async def test_a_kubeconfig_that_is_gone_before_it_is_watched_is_noticed(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    files = CredentialFiles(tmp_path / "in force")
    files.prepare()
    path = tmp_path / "etc" / "kubelet.conf"
    path.parent.mkdir()
    path.write_text("kind: Config")
    startup = SimpleNamespace(credentials=SimpleNamespace(report=REPORT, files=files), evaluated_at=time.time())
    looks: list[float] = []

    def read(config: EffectiveConfig, wall: float) -> KubeconfigReport:
        looks.append(wall)
        return replace(REPORT, material=None, problems=(f"{path}: cannot be read",))

    monkeypatch.setattr(kubeconfig_follower, "resolve_ordinary", read)
    asyncio.get_running_loop().set_default_executor(AtOnce())
    config = replace(stage.config, kubeconfig=str(path))
    context = Context("bootstrap", config, stage.network.bus("bootstrap"), stage.network.clock, asyncio.Event())
    follower = KubeconfigFollower(context, cast("BootstrapStartup", startup), lambda: None)
    path.unlink() if gone == "the file" else shutil.rmtree(path.parent)
    following = asyncio.create_task(follower.run())
    await stage.passes(1)
    assert len(looks) == 1
    await ended(following)
