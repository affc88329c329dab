"""What all tests share: the rule for what a machine lacks, and the time each lane took."""

import gc
import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from tests.support.agents import evidence
from tests.support.agents.kept_machine import KEPT_MACHINE
from tests.support.installed import ran_versions
from tests.support.installed.chosen_programs import put_containerd_on_path
from tests.support.installed.lacking import lack, lacking_for_root
from tests.support.runtime.docker_limits import skip_beyond_docker
from tests.support.waits.deadline import SLOWNESS, measure_slowness
from tests.support.waits.waiting import MAX_LOAD, MAX_WAIT_SECONDS, max_wait_seconds, read_usage, waited_seconds
from tests.unit.examples import QUICK, mark_shares

# A machine that does other things as well makes no example wrong. The same examples are drawn each time, so that no
# unrelated change turns red; `make night` draws new ones.
_SAME_EXAMPLES = not os.environ.get("NIGHT")
hypothesis.settings.register_profile("bulkhead", deadline=None, print_blob=True, derandomize=_SAME_EXAMPLES)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=100 // QUICK, derandomize=_SAME_EXAMPLES)
hypothesis.settings.load_profile("bulkhead")

_OF_PYTEST = b"PYTEST_CURRENT_TEST"  # pytest itself sets it in each phase of a test
_TESTS = Path(__file__).resolve().parent
_ON_CHOSEN_PROGRAMS = ("e2e", "process")  # the lanes whose agents use what `chosen_programs` has chosen
_seconds: dict[str, float] = defaultdict(float)
_counts: dict[str, int] = defaultdict(int)


def _lane(item: pytest.Item) -> str:
    """The first directory below tests."""
    return _lane_of_file(item.path)


@cache
def _lane_of_file(path: Path) -> str:
    return path.relative_to(_TESTS).parts[0]


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `night` run with NIGHT=1, which `make night` sets. A slow machine gets longer limits."""
    mark_shares(items)
    for item in items if SLOWNESS > 1 else ():
        _lengthen_limit(item)
    if os.environ.get("NIGHT"):
        return
    nightly = [item for item in items if item.get_closest_marker("night") is not None]
    config.hook.pytest_deselected(items=nightly)
    items[:] = [item for item in items if item.get_closest_marker("night") is None]


def _lengthen_limit(item: pytest.Item) -> None:
    """Multiply the limit that pytest-timeout has for the test by how slow the machine is."""
    mark = item.get_closest_marker("timeout") or pytest.mark.timeout(float(item.config.getini("timeout"))).mark
    first = [SLOWNESS * seconds for seconds in mark.args[:1]]
    named = {name: SLOWNESS * value if name == "timeout" else value for name, value in mark.kwargs.items()}
    item.add_marker(pytest.mark.timeout(*first, *mark.args[1:], **named), append=False)


def pytest_configure(config: pytest.Config) -> None:
    """Let no agent that gets our variables change this machine."""
    os.environ |= KEPT_MACHINE
    if _SAME_EXAMPLES:
        # Hypothesis would read all of our modules that are imported for their constants, a second in each process, and
        # draw other examples where another test has imported more.
        providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector: what is imported and collected lives to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `root` may need anything that running and testing do, unless it is marked `no_runtime`."""
    ran_versions.begin_test()
    skip_beyond_docker(item)
    if item.get_closest_marker("root") is None:
        return
    runtime = item.get_closest_marker("no_runtime") is None
    if lacking := lacking_for_root(runtime=runtime):
        lack(lacking)
    if runtime and _lane(item) in _ON_CHOSEN_PROGRAMS:
        put_containerd_on_path()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what the agents of its fixtures have logged and recorded."""
    report = yield
    if report.failed or (report.passed and report.when == "call"):
        ran_versions.end_test(item.path.relative_to(_TESTS.parent).as_posix(), passed=report.passed)
    if report.failed and report.when != "teardown":
        for home in sorted(evidence.live):
            report.sections.append((f"agent in {home}", evidence.show(home, item.nodeid)))
    return report


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """End with each test what it, or what it called, has set in the environment."""
    # As bytes: os.environ decodes each of forty variables for each of thousands of tests.
    before = os.environb._data.copy()  # type: ignore[attr-defined]
    yield
    after = os.environb._data.copy()  # type: ignore[attr-defined]
    before[_OF_PYTEST] = after.get(_OF_PYTEST)
    if after == before:
        return
    for name in after.keys() | before.keys():
        if after.get(name) != before.get(name):
            if name in before:
                os.environb[name] = before[name]
            else:
                del os.environb[name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """A unit or service test that passes after a long wait fails: what it waits for has no event of its own."""
    if _lane(item) not in ("unit", "service"):
        return (yield)
    begin = read_usage()
    result = yield
    if time.monotonic() - begin.wall <= MAX_WAIT_SECONDS:
        return result
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    if load > MAX_LOAD:
        return result
    waited = waited_seconds(begin, read_usage(), load)
    # Threads that wait for a CPU, and the disk, do not count as work; others may have come since this process began.
    most = max_wait_seconds(max(SLOWNESS, measure_slowness()))
    if waited > most:
        pytest.fail(f"the test waited {waited:.1f} s, more than {most:g} s: an event is missing")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Add up the time of each lane (the first directory below tests), fixtures included."""
    lane = _lane(item)
    began = time.monotonic()
    result = yield
    _seconds[lane] += time.monotonic() - began
    _counts[lane] += 1
    return result


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the versions that ran, for docs/versions.md."""
    given = session.config.option
    # The marks that the queue asks for belong to a choice of programs of their own.
    by_marks = given.markexpr and not session.config.pluginmanager.has_plugin("tests.queue.recorder")
    by_name = given.keyword or given.deselect or any("::" in argument for argument in session.config.args)
    selected = by_marks or by_name
    stopped = session.shouldfail or exitstatus == pytest.ExitCode.INTERRUPTED
    ran_versions.write_notes(partial=bool(selected or stopped))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per lane, before pytest's own closing line."""
    if _counts:
        lanes = ", ".join(f"{lane} {_counts[lane]} in {_seconds[lane]:.1f} s" for lane in sorted(_counts))
        terminalreporter.write_line(f"lanes: {lanes}")
    if ran := ran_versions.render_run():
        terminalreporter.write_line(f"ran with: {ran}")
    if seed := os.environ.get("FIRST_SEED"):
        terminalreporter.write_line(f"seeds begin at {seed}: repeat with NIGHT=1 FIRST_SEED={seed}")
