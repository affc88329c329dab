"""No file that is given as configuration costs much, hangs, or ends in a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.config.evaluation import evaluate
from shared.config.field_table import FIELDS
from shared.config.findings import ConfigurationRefusedError
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.examples import examples

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
LONGEST = 256 * 1024 - len(HEAD) - 100
MEASURE = """
import json, resource, sys, time
from shared.config.findings import ConfigurationRefusedError
from shared.config.evaluation import evaluate

def attempt(arguments):
    try:
        evaluate(arguments)
    except ConfigurationRefusedError as error:
        return error.lines
    return ()

attempt([])
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
results = []
for file in sys.argv[1:]:
    began = time.process_time()
    lines = attempt([f"--config={file}"])
    results.append([file, len(lines), time.process_time() - began])
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, results]))
"""
LARGE = {
    "ten-mebibytes": HEAD + "a: " + "x" * (10 * 1024 * 1024),
    "ten-mebibytes-of-keys": HEAD + "".join(f"key{number}: 1\n" for number in range(700_000)),
    "list": HEAD + "a: [" + "a," * (LONGEST // 2),
    "brackets": HEAD + "a: " + "[" * LONGEST,
    "keys": HEAD + "".join(f"k{number:04}: 1\n" for number in range(9900)),
    "gates": HEAD + "featureGates:\n" + "".join(f" K{number:04}: true\n" for number in range(9000)),
    "types": HEAD + "registerWithTaints:\n" + "- 5\n" * 19_000,
    "cpus": HEAD + 'reservedSystemCPUs: "' + "0-99999," * 20_000 + '1"',
    "digits": HEAD + "maxPods: " + "9" * LONGEST,
    "documents": HEAD + "---\n" * 60_000,
}


@pytest.mark.long
@pytest.mark.parametrize("names", [list(LARGE)[:2], list(LARGE)[2:]], ids=["ten MiB", "just not refused unread"])
def test_a_large_file_costs_little_memory_and_time(tmp_path: Path, names: list[str]) -> None:
    files = [tmp_path / name for name in names]
    for file in files:
        file.write_text(LARGE[file.name], encoding="utf-8")
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, files)], capture_output=True, check=True, timeout=WAIT_SECONDS
    )
    kibibytes, results = json.loads(measured.stdout)
    assert kibibytes < 64 * 1024
    for file, lines, seconds in results:
        assert lines > 0 and seconds < 5, file


_VALUES = st.sampled_from(
    [
        "1",
        "-1",
        "0",
        "yes",
        "null",
        "5s",
        "10%",
        "1Gi",
        "'x'",
        "[]",
        "{}",
        "[a, 1]",
        "{a: b}",
        "99999999999",
        "1.5",
        "/",
    ]
)
_KEYS = st.sampled_from([one.key for one in FIELDS if "." not in one.key] + ["Nonsense", "logging", "tracing"])


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(st.tuples(_KEYS, _VALUES), max_size=6), drop_in=st.booleans())
def test_any_content_of_a_file_is_taken_or_refused(tmp_path: Path, pairs: list[tuple[str, str]], drop_in: bool) -> None:
    (tmp_path / "f.conf").write_text(HEAD + "".join(f"{key}: {value}\n" for key, value in pairs), encoding="utf-8")
    try:
        config = evaluate([f"--config-dir={tmp_path}" if drop_in else f"--config={tmp_path}/f.conf"]).config
        assert config.document["maxPods"] >= 0
    except ConfigurationRefusedError as error:
        assert error.lines and all("\n" not in line for line in error.lines)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_whatever_a_file_holds_it_is_taken_or_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "f"
    file.write_bytes(content)
    with pytest.raises(ConfigurationRefusedError) as refused:
        evaluate([f"--config={file}"])
    assert all(line.isprintable() for line in refused.value.lines)


def test_without_a_working_directory_relative_paths_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for flag in ("--config=k.yaml", "--lock-file=lock", "--pod-manifest-path=manifests"):
        with pytest.raises(ConfigurationRefusedError) as refused:
            evaluate([flag])
        [line] = refused.value.lines
        assert line.startswith("paths that do not begin with / are read from the working directory, which no longer")
    assert evaluate(["--pod-manifest-path=/etc/manifests"]).config.static_pod_path == "/etc/manifests"
