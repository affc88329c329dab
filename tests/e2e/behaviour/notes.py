"""What containers write into a directory of the host, because their logs are removed with them: moments and words.

Moments are /proc/uptime, which is the same in every container and on the host.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from shared.model.objects import Object
from tests.support.agents.behaviour import container
from tests.support.waits.deadline import WAIT_SECONDS

# `note` a word; `stubborn` ends by no TERM and notes every tenth of a second until it is killed.
WORDS = """\
note() { read up rest < /proc/uptime; echo "$up $1" >> /out/$FILE; }
stubborn() { trap 'note term' TERM; note up; while :; do sleep 0.1; note alive; done; }
dying() { trap "note term; sleep ${1:-0}; note end; exit 0" TERM; note up; while :; do sleep 1 & wait $!; done; }
"""


@dataclass(frozen=True)
class Notes:
    """A directory of the host that containers write into."""

    directory: Path

    def volume(self) -> Object:
        """For the pod's spec."""
        return {"name": "out", "hostPath": {"path": str(self.directory)}}

    def container(self, name: str, script: str, *, file: str, **fields: object) -> Object:
        """A container that runs the script, with the words at hand; it writes to `file`."""
        mounts = [{"name": "out", "mountPath": "/out"}]
        env = [{"name": "FILE", "value": file}]
        return container(name, WORDS + script, env=env, volumeMounts=mounts, **fields)

    def hook(self, script: str, file: str) -> Object:
        """An exec handler that runs the script in such a container."""
        return {"exec": {"command": ["sh", "-c", f"FILE={file}\n{WORDS}{script}"]}}

    def read(self, file: str) -> list[tuple[float, str]]:
        """Everything written, in order."""
        path = self.directory / file
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in lines if " " in line]

    def words(self, file: str) -> list[str]:
        """Without moments and without the repeated sign that the container runs."""
        return [word for _, word in self.read(file) if word != "alive"]

    def moment(self, file: str, word: str) -> float:
        """When it was written first; AssertionError where it was not."""
        moments = self.moments(file, word)
        assert moments, f"{word} was never written to {file}: {self.words(file)}"
        return moments[0]

    def last(self, file: str) -> float:
        """When anything was written last."""
        written = self.read(file)
        assert written, f"nothing was written to {file}"
        return written[-1][0]

    def moments(self, file: str, word: str) -> list[float]:
        """Every time it was written."""
        return [when for when, written in self.read(file) if written == word]

    def wait(self, file: str, word: str, seconds: float = WAIT_SECONDS, times: int = 1) -> float:
        """Until it has been written so often; the last of these moments. For use in a thread."""
        deadline = time.monotonic() + seconds
        while len(self.moments(file, word)) < times:
            assert time.monotonic() < deadline, f"no {word} in {file} within {seconds} s: {self.words(file)}"
            time.sleep(0.02)
        return self.moments(file, word)[times - 1]

    async def wait_words(self, file: str, count: int, seconds: float = WAIT_SECONDS) -> list[str]:
        """All words once there are so many: a container is seen to run before it has written its first one."""
        deadline = time.monotonic() + seconds
        while len(self.words(file)) < count and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        return self.words(file)
