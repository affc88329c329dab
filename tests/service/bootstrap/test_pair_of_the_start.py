"""The serving pair that the evaluation of a start has made and checked is not checked once more, which costs a process
that imports `cryptography`."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bus.messages.streams import CERTIFICATES
from services.bootstrap.adapters.serving_pair import PairReport, PairRequest, ensure_pair, pair_request
from services.bootstrap.controllers import configuration_watch
from services.bootstrap.controllers.configuration_watch import ConfigurationWatch
from services.bootstrap.controllers.startup import BootstrapStartup
from services.frame.launch import Context
from shared.config.effective import EffectiveConfig
from shared.time.clock import SystemClock
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.virtual_time import AtOnce, ended
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.mark.parametrize("touched", [False, True])
async def test_a_pair_is_checked_again_only_when_it_was_touched_after_the_start_has_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, touched: bool
) -> None:
    checked: list[PairRequest] = []

    def check(request: PairRequest) -> PairReport:
        checked.append(request)
        return ensure_pair(request)

    monkeypatch.setattr(configuration_watch, "ensure_pair_in_child", check)
    certificate, key = tmp_path / "pki/kubelet.crt", tmp_path / "pki/kubelet.key"
    config = EffectiveConfig(
        node_name="n1", root_dir=str(tmp_path), run_dir=str(tmp_path), log_dir="", cert_dir=str(tmp_path / "pki"),
        tls_cert_file=str(certificate), tls_private_key_file=str(key),
    )  # fmt: skip
    evaluated_at = time.time()
    pair = ensure_pair(pair_request(config))
    if touched:
        key.rename(tmp_path / "away")
        (tmp_path / "away").rename(key)
    restored = asyncio.Event()

    def restore() -> list[str]:
        restored.set()
        return []

    begun: Any = SimpleNamespace(
        evaluated_at=evaluated_at, pair=pair, refused=(), own_files=list, restore_files=restore
    )
    monkeypatch.setattr(configuration_watch, "_SETTLE_SECONDS", 0)
    asyncio.get_running_loop().set_default_executor(AtOnce())
    bus = MemoryNetwork().bus("bootstrap")
    context = Context("bootstrap", config, bus, SystemClock(), asyncio.Event())
    watch = ConfigurationWatch(context, cast("BootstrapStartup", begun), bus.own(CERTIFICATES))

    async def follow() -> None:
        async with asyncio.TaskGroup() as tasks:
            watch.start(tasks)

    following = asyncio.create_task(follow())
    async with asyncio.timeout(WAIT_SECONDS):
        await restored.wait()
    for _ in range(10):  # turns of the loop: all that follows from what was found at the start
        await asyncio.sleep(0)
    assert len(checked) == touched
    await ended(following)
