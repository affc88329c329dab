"""The configuration of image credential providers: what is refused, and where."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.config.credential_providers import check_credential_providers
from shared.config.findings import Findings
from tests.unit.examples import examples

GATES = {"KubeletServiceAccountTokenForCredentialProviders": True}
API = "credentialprovider.kubelet.k8s.io"
TOKEN = {"serviceAccountTokenAudience": "a", "cacheType": "Token", "requireServiceAccount": True}


def provider(**changes: Any) -> dict[str, Any]:
    """A good one with some keys changed; None removes a key."""
    good = {
        "name": "plugin",
        "matchImages": ["*.registry.example:8080/team"],
        "defaultCacheDuration": "12h",
        "apiVersion": f"{API}/v1",
    }
    return {key: value for key, value in {**good, **changes}.items() if value is not None}


def document(*providers: Any, version: str = "v1", **more: Any) -> str:
    head = {"apiVersion": f"kubelet.config.k8s.io/{version}", "kind": "CredentialProviderConfig"}
    return json.dumps({**head, "providers": providers, **more})


def problems(tmp_path: Path, text: str, gates: dict[str, bool] = GATES) -> list[str]:
    """What is wrong with the file, without its place."""
    config, plugins = tmp_path / "c.yaml", tmp_path / "bin"
    config.write_text(text)
    plugins.mkdir(exist_ok=True)
    (plugins / "plugin").touch(mode=0o755)
    findings = Findings()
    check_credential_providers(str(config), str(plugins), gates, findings)
    assert all(line.startswith(f"{config}:") for line in findings.lines)
    return [line.removeprefix(str(config)).partition(": ")[2] for line in findings.lines]


def test_neither_flag_and_both_flags_are_fine(tmp_path: Path) -> None:
    findings = Findings()
    check_credential_providers("", "", GATES, findings)
    assert findings.lines == []
    env = [{"name": "A", "value": "b"}]
    assert problems(tmp_path, document(provider(args=["--x"], env=env, tokenAttributes=TOKEN))) == []
    assert problems(tmp_path, document(provider(apiVersion=f"{API}/v1alpha1"), version="v1beta1")) == []


def test_what_is_fine_is_given_to_the_agent(tmp_path: Path) -> None:
    plugins = tmp_path / "bin"
    plugins.mkdir()
    for name in ("plugin", "second"):
        (plugins / name).touch(mode=0o755)
    env = [{"name": "A", "value": "hush"}, {"name": "B"}]
    token = TOKEN | {"requireServiceAccount": True, "requiredServiceAccountAnnotationKeys": ["a/b"]}
    more = provider(name="second", tokenAttributes=token, args=["--x"], env=env)
    (tmp_path / "c.yaml").write_text(document(provider(defaultCacheDuration="1m30s"), more))
    findings = Findings()
    first, second = check_credential_providers(str(tmp_path / "c.yaml"), str(plugins), GATES, findings)
    assert (first.name, first.default_cache_seconds, first.token_audience) == ("plugin", 90.0, "")
    assert (second.args, second.env) == (("--x",), (("A", "hush"), ("B", "")))
    assert (second.token_audience, second.token_cache_type) == (
        token["serviceAccountTokenAudience"],
        token["cacheType"],
    )
    assert (second.requires_account, second.required_annotations) == (True, ("a/b",))
    assert "hush" not in repr(second)
    (tmp_path / "c.yaml").write_text(document(provider(), provider()))
    assert check_credential_providers(str(tmp_path / "c.yaml"), str(plugins), GATES, findings) == ()


def test_one_flag_needs_the_other(tmp_path: Path) -> None:
    findings = Findings()
    check_credential_providers("", str(tmp_path), GATES, findings)
    check_credential_providers(str(tmp_path / "none"), "", GATES, findings)
    config, bin_dir = "--image-credential-provider-config", "--image-credential-provider-bin-dir"
    assert findings.lines == [
        f"{config}: is not set, but {bin_dir} is (give both flags, or none)",
        f"{bin_dir}: is not set, but {config} is (give both flags, or none)",
        f"{config}: {tmp_path}/none cannot be read: No such file or directory (give a CredentialProviderConfig file)",
    ]


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"name": None}, "providers[0].name: is missing"),
        ({"name": "a/b"}, 'providers[0].name: is "a/b", must be without / and space'),
        ({"name": "a b"}, 'providers[0].name: is "a b"'),
        ({"name": "."}, 'providers[0].name: is "."'),
        ({"name": ".."}, 'providers[0].name: is ".."'),
        ({"matchImages": []}, "providers[0].matchImages: is empty"),
        ({"matchImages": ["a", "b:port"]}, 'providers[0].matchImages[1]: is "b:port", which cannot be parsed'),
        ({"matchImages": ["a b"]}, 'providers[0].matchImages[0]: is "a b"'),
        ({"matchImages": ["a/%zz"]}, 'providers[0].matchImages[0]: is "a/%zz"'),
        ({"defaultCacheDuration": None}, "providers[0].defaultCacheDuration: is missing"),
        ({"defaultCacheDuration": "-1s"}, 'providers[0].defaultCacheDuration: is "-1s", must not be negative'),
        ({"defaultCacheDuration": 5}, "providers[0].defaultCacheDuration: is 5, must be a duration"),
        ({"apiVersion": None}, "providers[0].apiVersion: is missing"),
        ({"apiVersion": "v1"}, f'providers[0].apiVersion: is "v1", must be one of {API}/v1, {API}/v1beta1'),
        ({"nme": "a"}, "providers[0].nme: unknown key"),
        ({"args": [1234]}, "providers[0].args[0]: must be a string"),
        ({"env": [{"name": "A", "value": 1234}]}, "providers[0].env[0].value: must be a string"),
        ({"tokenAttributes": TOKEN, "apiVersion": f"{API}/v1beta1"}, "providers[0].tokenAttributes: needs apiVersion"),
        ({"tokenAttributes": {**TOKEN, "serviceAccountTokenAudience": ""}},
         "providers[0].tokenAttributes.serviceAccountTokenAudience: is missing"),
        ({"tokenAttributes": {**TOKEN, "cacheType": None}}, "providers[0].tokenAttributes.cacheType: is missing"),
        ({"tokenAttributes": {**TOKEN, "cacheType": "token"}}, 'providers[0].tokenAttributes.cacheType: is "token"'),
        ({"tokenAttributes": {**TOKEN, "requireServiceAccount": None}},
         "providers[0].tokenAttributes.requireServiceAccount: is missing"),
        ({"tokenAttributes": {**TOKEN, "requireServiceAccount": False, "requiredServiceAccountAnnotationKeys": ["a"]}},
         "providers[0].tokenAttributes.requiredServiceAccountAnnotationKeys: needs requireServiceAccount true"),
        ({"tokenAttributes": {**TOKEN, "requiredServiceAccountAnnotationKeys": ["a", "a"]}},
         'providers[0].tokenAttributes.requiredServiceAccountAnnotationKeys[1]: "a" is given twice'),
        ({"tokenAttributes": {**TOKEN, "optionalServiceAccountAnnotationKeys": ["a/b/c"]}},
         'providers[0].tokenAttributes.optionalServiceAccountAnnotationKeys[0]: "a/b/c": prefix part'),
        ({"tokenAttributes": {**TOKEN, "requiredServiceAccountAnnotationKeys": ["a"],
                              "optionalServiceAccountAnnotationKeys": ["b", "a"]}},
         'providers[0].tokenAttributes.optionalServiceAccountAnnotationKeys: "a" is required, too'),
    ],
)  # fmt: skip
def test_a_provider_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any], start: str) -> None:
    found = problems(tmp_path, document(provider(**changes)))
    assert [line[: len(start)] for line in found] == [start]
    assert "1234" not in found[0]


def test_the_neighbours_of_what_is_refused_are_taken(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/...").touch(mode=0o755)
    keys = {"requiredServiceAccountAnnotationKeys": ["Example.com/a"], "optionalServiceAccountAnnotationKeys": ["b"]}
    good = provider(
        name="...", defaultCacheDuration="0s", matchImages=["[::1]:5000/a"], tokenAttributes={**TOKEN, **keys}
    )
    assert problems(tmp_path, document(good)) == []


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", "is empty (write a CredentialProviderConfig into it)"),
        ("[]", "is not a mapping"),
        ("a: [", "is not YAML"),
        (document(), "providers: is empty (name at least one provider)"),
        (document(provider(), provider()), 'a second provider "plugin", the first is at'),
        (document(provider(), kinds="x"), "kinds: unknown key"),
        (document(provider()).replace("CredentialProviderConfig", "Pod"), "kind: must be CredentialProviderConfig"),
        (
            document(provider(), version="v2"),
            "apiVersion: must be kubelet.config.k8s.io/ and one of v1, v1beta1, v1alp",
        ),
        (document(provider(tokenAttributes=TOKEN), version="v1beta1"), "providers[0].tokenAttributes: unknown key"),
        (document(provider())[:-1] + ', "providers": []}', "providers: is given twice, first at"),
        (document("x"), 'providers[0]: is "x", must be a mapping'),
        (document(provider(name="absent")), "plugin "),
    ],
)
def test_a_file_that_cannot_be_is_refused(tmp_path: Path, text: str, start: str) -> None:
    found = problems(tmp_path, text) if text else [problems_of_empty(tmp_path)]
    assert found[0].startswith(start)


def problems_of_empty(tmp_path: Path) -> str:
    (tmp_path / "c.yaml").touch()
    findings = Findings()
    check_credential_providers(str(tmp_path / "c.yaml"), str(tmp_path), GATES, findings)
    [line] = findings.lines
    return line.partition(": ")[2]


def test_tokens_need_their_gate(tmp_path: Path) -> None:
    [line] = problems(tmp_path, document(provider(tokenAttributes=TOKEN)), {})
    assert line.startswith("providers[0].tokenAttributes: is set while feature gate KubeletServiceAccountTokenFor")


def test_a_directory_is_read_in_order_and_not_below(tmp_path: Path) -> None:
    config, plugins = tmp_path / "config", tmp_path / "bin"
    for directory in (config, config / "d.yaml", plugins):
        directory.mkdir()
    (plugins / "plugin").touch(mode=0o755)
    (plugins / "other").touch(mode=0o755)
    findings = Findings()
    check_credential_providers(str(config), str(plugins), GATES, findings)
    assert findings.lines == [
        f"--image-credential-provider-config: {config} holds no file ending in .json, .yaml, .yml (put one there)"
    ]
    (config / "b.yml").write_text(document(provider()))
    (config / "a.json").write_text(document(provider(), provider(name="other")))
    (config / "d.yaml/x.yaml").write_text("nonsense")
    (config / "readme.txt").write_text("nonsense")
    findings = Findings()
    check_credential_providers(str(config), str(plugins), GATES, findings)
    [line] = findings.lines
    assert line.startswith(f"{config}/b.yml:1:")
    assert f'a second provider "plugin", the first is at {config}/a.json:1:' in line


def test_files_that_cannot_be_read_are_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "large.yaml").write_text("#" * 300_000)
    findings = Findings()
    for name in ("bytes.yaml", "large.yaml"):
        check_credential_providers(str(tmp_path / name), str(tmp_path), GATES, findings)
    check_credential_providers("/dev/null", str(tmp_path / "no"), GATES, findings)
    begin = f"--image-credential-provider-config: {tmp_path}"
    assert findings.lines[0] == f"{begin}/bytes.yaml is not text (save it as UTF-8)"
    assert findings.lines[1].startswith(f"{begin}/large.yaml ")
    assert findings.lines[2].startswith("--image-credential-provider-config: /dev/null is no file")
    assert findings.lines[3].startswith(f"--image-credential-provider-bin-dir: {tmp_path}/no cannot be used: No such")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(st.sampled_from([*provider(), "args", "env", "tokenAttributes"]), VALUES), VALUES)
def test_no_provider_breaks_the_check(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any], other: Any
) -> None:
    directory = tmp_path_factory.getbasetemp()
    config = directory / "fuzzed.yaml"
    config.write_text(document({**provider(), **changes}, other))
    findings = Findings()
    check_credential_providers(str(config), str(directory), GATES, findings)
    assert all("\n" not in line for line in findings.lines)
