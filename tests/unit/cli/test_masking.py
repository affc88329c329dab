"""Credentials are masked in texts, and nothing else is."""

import base64
import json
import random
import time

import pytest

from services.cli.config import masking
from services.cli.config.masking import MASK, without_credentials
from tests.unit.examples import examples


def test_a_credential_is_masked(subtests: pytest.Subtests) -> None:
    for text, expected in [
        ("-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\nafter", f"{MASK}\nafter"),
        ("-----BEGIN PRIVATE KEY-----\\nMHcC", MASK),
        ("token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2lnbmF0dXJl end", f"token {MASK} end"),
        ("Authorization: Bearer abcdefgh12345", f"Authorization: Bearer {MASK}"),
        ("authorization: basic dXNlcjpwYXNzd29yZA==", f"authorization: basic {MASK}"),
        ("http://user:hunter2@registry.example/v2", f"http://user:{MASK}@registry.example/v2"),
        ("http://c.example/pods?node=a&token=hunter2&x=1", f"http://c.example/pods?node=a&token={MASK}&x=1"),
        ('"https://s3.example/a?X-Amz-Signature=0a1b"', f'"https://s3.example/a?X-Amz-Signature={MASK}"'),
        ('{"password": "hunter2", "user": "x"}', f'{{"password": "{MASK}", "user": "x"}}'),
        (r'{"message": "{\"password\": \"hunter2\"}"}', rf'{{"message": "{{\"password\": \"{MASK}\"}}"}}'),
        (r'"{\\\"password\\\":\\\"hunter2\\\"}"', rf'"{{\\\"password\\\":\\\"{MASK}\\\"}}"'),
        (r'{"password": "hun\"ter\"2", "user": "x"}', f'{{"password": "{MASK}", "user": "x"}}'),
        (r'"{\"password\": \"hun\\\"ter2\", \"user\": 1}"', rf'"{{\"password\": \"{MASK}\", \"user\": 1}}"'),
        ('{"password": "two words"}', f'{{"password": "{MASK}"}}'),
        ('{"password": "", "user": "x"}', '{"password": "", "user": "x"}'),
        (r"password=hun\ter2 next", f"password={MASK} next"),
        ("DB_PASSWORD=hunter2 next", f"DB_PASSWORD={MASK} next"),
        ("AWS_SECRET_ACCESS_KEY=abc", f"AWS_SECRET_ACCESS_KEY={MASK}"),
        ("client-key-data: MHcC", f"client-key-data: {MASK}"),
        ("the bearer of this", "the bearer of this"),
        ("the password is not shown", "the password is not shown"),
        ("secret default/web: not found", "secret default/web: not found"),
        ("-----BEGIN CERTIFICATE-----\nMIIB", "-----BEGIN CERTIFICATE-----\nMIIB"),
    ]:
        with subtests.test(text):
            assert without_credentials(text) == expected


SECRET = "Zq7-hunter2_9xKfTT"
DOCKER_CONFIGURATION = base64.b64encode(b'{"auths": {"r.example": {"auth": "dXNlcjpodW50ZXIy"}}}').decode()
PEM_AS_BASE64 = base64.b64encode(b"-----BEGIN PRIVATE KEY-----\n" + b"MIIEvQIBADANBgkqh" * 8).decode()


def test_a_value_is_masked_by_its_name_in_every_form(subtests: pytest.Subtests) -> None:
    for text in [
        f"DB_TOKEN={SECRET}",
        f"DB_PA\u017f\u017fWORD={SECRET}",  # letters that are `s`, `k` and `i` without regard to case
        f"DB_TO\u212aEN={SECRET}",
        f"DB_CREDENT\u0130AL={SECRET}",
        f"DB_CREDENT\u0131AL={SECRET}",
        f"API_SECRET='{SECRET}'",
        f"ENCRYPTION_KEY={SECRET}",
        f"pwd={SECRET} next",
        f"passphrase: {SECRET}",
        f"    token: {SECRET}",
        f'  "signing-key": "{SECRET}"',
        f'{{"clientSecret": "{SECRET}", "token":"x{SECRET}"}}',
        rf'{{"message": "kind: Config\n  token: {SECRET}\n"}}',
        f'{{"name": "DB_PASSWORD", "value": "{SECRET}"}}',
        rf'"{{\"name\":\"DB_PASSWORD\",\"value\":\"{SECRET}\"}}"',
        f"- name: API_TOKEN\n  value: {SECRET}\n",
        f"--token={SECRET} next",
        f"--db-password {SECRET} next",
        f"-client-secret={SECRET}",
        f'["--api-token", "{SECRET}"]',
        rf'"[\"--api-token\",\"{SECRET}\"]"',
        f"X-Auth-Token: {SECRET}",
        f"Authorization:[Bearer {SECRET}]",
        f"Set-Cookie: session={SECRET}; Path=/",
        f"https://{SECRET}@git.example/team/app",
        f"Server=db;User Id=a;Password={SECRET};",
        f"AccountName=a;AccountKey={SECRET}==;EndpointSuffix=core",
        f"DB_PASS={SECRET}",
        f'{{"pass": "{SECRET}"}}',
        f"redis://:{SECRET}@cache:6379/0",
        f"https://user:a@{SECRET}@registry.example/v2",
        f"Authorization: token {SECRET}",
        f'{{"Authorization": "{SECRET}"}}',
        f'{{"Cookie": "sid={SECRET}"}}',
        f"password: |\n  {SECRET}\n\n  {SECRET}\nuser: a",
        f"- db:\n    api-token: >-\n      {SECRET}\n",
        json.dumps({"config": f"user: a\ntoken: |\n  {SECRET}\nnext: b"}),
        f'--token "{SECRET}"',
        f"--db-password 'two {SECRET}'",
        json.dumps(["--db-password", f"two {SECRET}"]),
        f"- --db-password\n- {SECRET}\n",
        f'- "--api-token"\n- "{SECRET}"\n',
        json.dumps({"command": f"args:\n- --api-token\n- {SECRET}\n"}),
        json.dumps({"envs": [{"key": "DB_PASSWORD", "value": SECRET}]}),
    ]:
        with subtests.test(text):
            assert SECRET not in without_credentials(text) and MASK in without_credentials(text)


def test_a_credential_is_masked_by_its_own_form(subtests: pytest.Subtests) -> None:
    for text, secret in [
        (f"tls.key: {PEM_AS_BASE64} next", PEM_AS_BASE64[20:]),
        (f'{{"auths": {{"r.example": {{"auth": "{"dXNlcjpodW50ZXIy"}"}}}}}}', "dXNlcjpodW50ZXIy"),
        ("id AKIAIOSFODNN7EXAMPLE end", "AKIAIOSFODNN7EXAMPLE"),
        ("by ghp_0123456789abcdefghijABCDEFGHIJ012345 end", "0123456789abcdefghijABCDEFGHIJ012345"),
        ("kubeadm join 10.0.0.1:6443 of abcdef.0123456789abcdef", "0123456789abcdef"),
        ("client_secret=AbCd1234/EfGh5678IjKl", "EfGh5678IjKl"),  # base64, and no namespace and name
        ("client_secret: AbCd1234/EfGh5678IjKl", "EfGh5678IjKl"),
        ('{"clientSecret": "AbCd1234/EfGh5678IjKl"}', "EfGh5678IjKl"),
        (f'".dockerconfigjson": "{DOCKER_CONFIGURATION}"', DOCKER_CONFIGURATION[8:]),
        (f"the data {DOCKER_CONFIGURATION} of a Secret", DOCKER_CONFIGURATION[8:]),
        ("auth: dXNlcjpodW50ZXIy\n", "dXNlcjpodW50ZXIy"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----", "lQOYBF"),
        ("by hvs.CAESIJ0123456789abcdef end", "CAESIJ0123456789abcdef"),
        ("token=abc|def{ghi[jkl>mno next", "ghi[jkl>mno"),
        ("id ASIAIOSFODNN7EXAMPLE end", "ASIAIOSFODNN7EXAMPLE"),
        *(
            (f"by {beginning}Cq7Lw2Zt9Rb4Yd1N end", "Cq7Lw2Zt9Rb4Yd1N")
            for beginning in (
                *("gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_", "glpat-", "xoxa-", "xoxb-", "xoxs-"),
                *("rk_live_", "sk_live_", "sk-proj-", "sk-ant-", "npm_", "hvb.", "hvs.", "dckr_pat_", "AIza"),
            )
        ),
    ]:
        with subtests.test(text):
            assert secret not in without_credentials(text) and MASK in without_credentials(text)


def test_other_texts_stay_readable(subtests: pytest.Subtests) -> None:
    for text in [
        'MountVolume.SetUp failed for volume "token": timed out',
        'secret "default/web" not found',
        '"Unable to retrieve pull secret" pod="default/web" secret="default/registry" err="not found"',
        "E1124 secret: not found",
        "failed to fetch token: the server did not answer",
        "couldn't find key token in Secret default/web",
        "the flag --token is gone",
        "--token-file /etc/token",
        '"secretKeyRef": {"name": "web", "key": "user"}',
        '"secret": {"secretName": "web"}',
        '"serviceAccountToken": {"path": "token"}',
        "  secret:\n    secretName: web",
        "automountServiceAccountToken: true",
        "tokenExpirationSeconds: 3600",
        "imagePullSecrets:\n- name: registry",
        "tolerations:\n- key: node.kubernetes.io/not-ready",
        "topologyKey: kubernetes.io/hostname",
        '{"password": {"secretKeyRef": {"name": "web"}}}',
        "the flag --token\n- is gone",
        "authorization: the webhook refused",
        "authorization:\n  mode: Webhook",
        "passed 3 of 3, bypass=true",
        "auth: denied",
        "tlsPrivateKeyFile: /pki/kubelet.key",
        "certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",
        "image registry.example/web:1@sha256:0123456789abcdef is pulled from http://registry.example/v2/",
        '{"name": "HOME", "value": "/root"} PWD=/root',
        'rest_client_requests_total{code="200",host="[::1]:6443"} 5',
        "uid 3f0f2a3e-0000-4000-8000-000000000000 of web-5d4f8b7c9-abcde",
    ]:
        with subtests.test(text):
            assert without_credentials(text) == text


@pytest.mark.share(4)
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "part",
    [
        *("a", "-eyJ", "eyJ.", "://", "bearer ", "password", "-----BEGIN A", "basic \t", "://a:", "?a", "&token"),
        *(
            "\\",
            "password\\",
            "token",
            "secret=a/",
            "name: A_TOKEN\n",
            "name: a_key\n value: ",
            "--",
            "--token ",
            "\n  ",
        ),
        *("LS0tLS1CRUdJTiBQ\n ", "-key: ", "token: |\n  a", "authorization: ", "abcdef.", "a.", "cookie:", "\n- "),
    ],
)
def test_a_text_made_to_be_slow_is_not(part: str) -> None:
    assert without_credentials(part * (examples(500_000) // len(part)))


FRAGMENTS = (
    "pass", "Password", "pa\N{LATIN SMALL LETTER LONG S}swd", "passphrase", "secret", "SECRET_key", "access-key", "ssh",
    "api_key", "client-key-data", "auth_token", "token", "Token", "_key", "-\N{KELVIN SIGN}ey", "privatekey", "signing",
    "credentials", "pwd", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "=", ":", ": ", " = ", '"', "'", "\\", '\\"',
    "\n", " ", "{", "default/foo", "hunter2", "x", "-", "/", ",", "<masked>",
)  # fmt: skip


def test_a_pattern_that_is_tried_at_its_starts_alone_replaces_what_a_search_does() -> None:
    rows = [row for row in masking._PATTERNS if row[0] is masking._STARTS]
    assert len(rows) == 3
    chosen = random.Random(1)
    replaced = 0
    for _ in range(examples(5000)):
        text = "".join(chosen.choices(FRAGMENTS, k=12))
        for _, pattern, replacement in rows:
            expected = pattern.sub(replacement, text)
            assert masking._substitute_from(masking._STARTS, pattern, replacement, text) == expected, text
            replaced += expected != text
    assert replaced > 100


def test_a_log_is_masked_in_less_time_than_a_search_for_the_names_takes() -> None:
    line = (
        'I1129 19:12:09.0 1 file.go:12] "sync" pod="a/web" key=abc path=/pods/x token refresh secret=a/foo password\n'
    )
    text = line * (examples(500_000) // len(line))
    began = time.process_time()
    without_credentials(text)
    masked = time.process_time()
    for found_by, pattern, replacement in masking._PATTERNS:
        if found_by is masking._STARTS:
            pattern.sub(replacement, text)
    assert masked - began < time.process_time() - masked
