"""An expired client certificate is noticed by the wall clock, and at once when the API server answers 401."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bus.messages.bootstrap import CredentialsRenewal, RenewCredentials
from services.bootstrap.adapters.credential_files import CredentialFiles
from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from services.bootstrap.controllers.kubeconfig_follower import KubeconfigFollower
from services.bootstrap.controllers.startup import BootstrapStartup
from services.frame.launch import Context
from tests.fakes.virtual_time import AtOnce, on_virtual_time, until
from tests.service.bootstrap.stage import BOOTSTRAP, REPORT, Stage


@pytest.mark.parametrize(("refused", "within"), [(False, 10.0), (True, 0.0)])
@on_virtual_time
async def test_one_that_ended_while_the_machine_slept_is_noticed_soon_and_at_a_401_at_once(
    tmp_path: Path, refused: bool, within: float
) -> None:
    """The monotonic clock does not count the time of a suspend or a step of the wall clock."""
    stage = Stage(tmp_path)
    stage.signer.lifetime, stage.signer.backdate = 100_000.0, 0.0
    await stage.begin()
    stage.signer.serve()
    await stage.passes(25)
    vars(stage.network.clock)["_wall"] += 200_000.0
    if refused:
        stage.keeper.wake()
    await until(stage.network, lambda: len(stage.users) == 2, within)
    assert stage.users == [BOOTSTRAP, BOOTSTRAP]


@on_virtual_time
async def test_a_401_to_the_credentials_in_force_reaches_the_rotation_and_one_to_older_ones_does_not(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
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
