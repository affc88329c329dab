"""`bulkhead what-if` against services in processes of their own: forms, exit codes, bad input, a podsync that stops."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.service.cli.stage import COMMAND, Stage
from tests.support.agents.preloaded import run_preloaded
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    running = Stage(tmp_path_factory.mktemp("agent"), pods=2)
    yield running
    running.stop()


def manifest(name: str = "web", kind: str = "Pod", **requests: str) -> dict[str, Any]:
    """A pod, or the owner of a template with it."""
    containers = [{"name": "web", "image": "registry.example/web:1", "resources": {"requests": requests}}]
    spec: dict[str, Any] = {"containers": containers}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": {"template": template}}


def what_if(stage: Stage, text: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command with this text as its input."""
    return run_preloaded(COMMAND, ["what-if", "-", "--run-dir", str(stage.run_dir), *words], given=text)


def test_an_admitted_pod_is_described_and_the_command_succeeds(stage: Stage) -> None:
    done = what_if(stage, yaml.safe_dump(manifest()))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "pod default/web-here: admitted"
    assert "missing, is pulled (IfNotPresent)" in done.stdout
    assert "\x1b" not in done.stdout and "\\x1b[2J" in done.stdout


def test_several_documents_have_an_answer_each_and_one_rejection_fails_the_command(stage: Stage) -> None:
    text = "\n---\n".join(json.dumps(one) for one in (manifest("a"), manifest("b", "Deployment", cpu="8")))
    done = what_if(stage, text, "-n", "shop")
    assert done.returncode == 1
    assert "pod shop/a-here: admitted" in done.stdout
    assert "pod shop/b-here (the template of Deployment shop/b): not admitted: OutOfcpu" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_get_data(stage: Stage, form: str) -> None:
    done = what_if(stage, json.dumps(manifest(cpu="8")), "-o", form)
    (found,) = yaml.safe_load(done.stdout)["pods"]
    assert (done.returncode, found["verdict"], found["reason"]) == (1, "rejected", "OutOfcpu")
    assert (found["namespace"], found["name"], found["source"]) == ("default", "web-here", "file")


def test_resource_claims_of_a_pod_are_named_with_what_is_prepared_and_with_the_drivers_that_are_missing(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, pods=3, kubeconfig="/none")
    try:
        pod = manifest()
        entries = [("net", "net-claim"), ("gpu", "gpu-claim"), ("other", "other-claim")]
        pod["spec"]["resourceClaims"] = [{"name": name, "resourceClaimName": claim} for name, claim in entries]
        pod["spec"]["resourceClaims"].append({"name": "own", "resourceClaimTemplateName": "nics"})
        results = [{"driver": "gpu.example.com"}, {"driver": "nic.example.com"}]
        given = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "gpu-claim"},
            "status": {"allocation": {"devices": {"results": results}}},
        }
        text = f"{json.dumps(pod)}\n---\n{json.dumps(given)}"
        done = what_if(stage, text, "-n", "shop")
        first, *lines = done.stdout.splitlines()
        assert (done.returncode, first) == (0, "pod shop/web: admitted, but it would not run")
        missing = "DRA driver gpu.example.com is not registered, or does not listen"
        assert f"  would not run: resource claim gpu: {missing}" in lines
        assert "  note: DRA drivers that prepare resource claims on this node: nic.example.com" in lines
        at = lines.index("  resource claims")
        assert lines[at + 1 : at + 5] == [
            "    net: ResourceClaim shop/net-claim: prepared, nic.example.com/here/nic-0",
            "    gpu: ResourceClaim shop/gpu-claim: given",
            "    other: ResourceClaim shop/other-claim: not known",
            "    own: ResourceClaimTemplate shop/nics: not known",
        ]
        (found,) = json.loads(what_if(stage, text, "-n", "shop", "-o", "json").stdout)["pods"]
        assert [(one["name"], one["state"], one["problem"]) for one in found["claims"]] == [
            ("net", "prepared", ""),
            ("gpu", "given", missing),
            ("other", "not known", ""),
            ("own", "not known", ""),
        ]
        (found,) = json.loads(what_if(stage, text, "-n", "default", "-o", "json").stdout)["pods"]
        assert found["claims"][0]["state"] == "not known", "the claim is in another namespace"
    finally:
        stage.stop()


def test_what_the_files_lack_and_what_they_give_is_named(stage: Stage) -> None:
    pod = manifest()
    pod["spec"]["containers"][0]["envFrom"] = [
        {"configMapRef": {"name": "given"}},
        {"secretRef": {"name": "lacking"}},
        {"secretRef": {"name": "maybe", "optional": True}},
    ]
    pod["spec"]["volumes"] = [{"name": name, "secret": {"secretName": name}} for name in ("mounted", "unused")]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "mounted", "mountPath": "/m"}]
    given = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "given"}}
    (found,) = json.loads(what_if(stage, f"{json.dumps(pod)}\n---\n{json.dumps(given)}", "-o", "json").stdout)["pods"]
    states = {one["name"]: one["state"] for one in found["references"]}
    assert states["given"] == "given"
    assert states["lacking"] == states["maybe"] == states["mounted"]
    assert "unused" not in states


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (manifest("<script>alert(1)</script>"), "metadata.name"),
        (manifest("web\x1b[2J"), "metadata.name"),
        ({**manifest(), "spec": {"containers": "web"}}, "spec.containers"),
        ({**manifest(), "apiVersion": "v2"}, "apiVersion"),
        ({"apiVersion": "v1", "kind": "Pod"}, "name"),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": "x"}, "spec.containers"),
    ],
    ids=["script", "escape", "types", "version", "empty", "template"],
)
def test_what_is_no_pod_is_named_with_its_field_and_not_admitted(
    stage: Stage, document: dict[str, Any], line: str
) -> None:
    done = what_if(stage, json.dumps(document))
    assert done.returncode == 1
    assert "not admitted: invalid pod: " in done.stdout and line in done.stdout
    assert "\x1b" not in done.stdout and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "-: not YAML"),
        ("", "-: holds no manifest"),
        ("kind: Service", "-: no pod: kind is none of Pod"),
        ("[1]", "-: holds a document that is no object"),
        ("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
        ), "-: not YAML"),
        ("kind: Pod\nx: '" + "x" * (17 << 20) + "'", "-: larger than 16 MiB"),
        ("\n---\n".join(["{kind: Pod}"] * 501), "-: 501 pods, 500 are the most"),
    ],
    ids=["broken", "empty", "no pod", "a list", "bomb", "huge", "many"],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_one_line_and_wrong_usage(stage: Stage, text: str, line: str) -> None:
    done = what_if(stage, text)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1


def test_a_static_pod_needs_a_configured_path(stage: Stage) -> None:
    done = what_if(stage, json.dumps(manifest()), "--static")
    assert (done.returncode, done.stderr) == (
        3,
        "--static: the agent has no staticPodPath (configure it, or omit --static)\n",
    )


def test_without_an_agent_the_command_names_the_run_directory(tmp_path: Path) -> None:
    done = run_preloaded(COMMAND, ["what-if", "-", "--run-dir", str(tmp_path)], given=json.dumps(manifest()))
    assert done.returncode == 3
    assert done.stderr.startswith(f"{tmp_path}: no agent was started with this run directory")


def test_a_pipe_that_closes_ends_the_command_without_a_traceback(stage: Stage) -> None:
    text = "\n---\n".join(json.dumps(manifest(f"web-{number}")) for number in range(100))
    command = [sys.executable, "-m", COMMAND, "what-if", "-", "--run-dir", str(stage.run_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.write(text.encode())
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(WAIT_SECONDS) == 1


def test_a_stopped_podsync_is_named(stage: Stage) -> None:
    podsync = stage.processes["podsync"]
    podsync.send_signal(signal.SIGSTOP)
    try:
        done = what_if(stage, json.dumps(manifest()))
    finally:
        podsync.send_signal(signal.SIGCONT)
    assert (done.returncode, done.stdout) == (3, "")
    assert "podsync is stopped by a signal (kill -CONT" in done.stderr
