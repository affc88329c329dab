"""A follower that is stopped (SIGSTOP) costs its owner no memory without end, and has all once it continues."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from bus.manifest import new_manifest, prepare_run_dir, write_manifest
from bus.messages.sources import DesiredPod
from bus.messages.streams import PODS_DESIRED
from bus.process_bus import ProcessBus
from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.stopped import wait_stopped

ROOT = Path(__file__).parents[2]
UPDATES, BYTES = 400, 1_400_000
MAX_GROWTH_BYTES = 100 << 20  # 32 MiB that wait, and what the allocator keeps; without a bound 560 MB
FOLLOWER = """
import asyncio, sys
from bus.manifest import new_manifest
from bus.messages.streams import PODS_DESIRED
from bus.process_bus import ProcessBus
from pathlib import Path

async def main():
    bus = ProcessBus("observer", new_manifest(Path(sys.argv[1])))
    pods = bus.follow(PODS_DESIRED, lambda _: print(*sorted(p.pod["n"] for p in pods.state.values()), flush=True))
    await bus.start()
    await asyncio.Event().wait()

asyncio.run(main())
"""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_an_owner_keeps_a_bounded_number_of_bytes_for_a_stopped_follower(tmp_path: Path) -> None:
    prepare_run_dir(run_dir := tmp_path / "r")
    manifest = new_manifest(run_dir)
    write_manifest(manifest)
    owner = ProcessBus("sources", manifest)
    pods = owner.own(PODS_DESIRED)

    def put(number: int) -> None:
        pods.put("a", DesiredPod(uid="a", source="file", pod={"n": number, "text": f"{number % 10}" * BYTES}))

    put(0)
    await owner.start()
    command = (sys.executable, "-c", FOLLOWER, str(run_dir))
    follower = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert follower.stdout is not None

    async def shown(number: int) -> None:
        assert follower.stdout is not None
        while await follower.stdout.readline() != b"%d\n" % number:
            assert follower.returncode is None

    try:
        await asyncio.wait_for(shown(0), WAIT_SECONDS)
        put(1)
        await asyncio.wait_for(shown(1), WAIT_SECONDS)
        follower.send_signal(signal.SIGSTOP)
        wait_stopped(follower.pid)
        before = most = resident_bytes()
        for number in range(2, UPDATES):
            put(number)
            await asyncio.sleep(0)
            most = max(most, resident_bytes())
        print(f"grew by {(most - before) >> 20} MiB")
        assert most - before < MAX_GROWTH_BYTES
        follower.send_signal(signal.SIGCONT)
        await asyncio.wait_for(shown(UPDATES - 1), WAIT_SECONDS)
    finally:
        follower.kill()
        await follower.wait()
        await owner.stop()
