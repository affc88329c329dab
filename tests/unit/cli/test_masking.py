"""Credentials are masked in texts, and nothing else is."""

import pytest

from services.cli.config.masking import MASK, without_credentials


@pytest.mark.parametrize(
    ("text", "expected"),
    [
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
    ],
)
def test_a_credential_is_masked(text: str, expected: str) -> None:
    assert without_credentials(text) == expected


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "part",
    [
        *("a", "-eyJ", "eyJ.", "://", "bearer ", "password", "-----BEGIN A", "basic \t", "://a:", "?a", "&token"),
        *("\\", "password\\"),
    ],
)
def test_a_text_made_to_be_slow_is_not(part: str) -> None:
    assert without_credentials(part * (500_000 // len(part)))
