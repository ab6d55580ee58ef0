"""The section [alerts] of a Steward's configuration, and the webhook's secret file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pvdm.errors import Code, PvdmError
from pvdm.steward.config.alerts import WebhookAlerts
from pvdm.steward.config.steward import load_config
from pvdm.steward.delivery.alerts import open_alert_sender
from tests.behaviour.steward.test_alerts import write_secret
from tests.support.for_each import for_each

CONFIG = """
notary = "n"
origin = "o"
ledger = "sqlite:///ledger.db"
outside = "outside"
[keys]
home = "file"
path = "keys"
[alerts]
"""


@for_each(
    "text",
    (
        'webhook = "http://example.com/x"\nsecret_file = "s"',
        'webhook = "https://user:pass@example.com/x"\nsecret_file = "s"',
        'webhook = "https://example.com:99999/x"\nsecret_file = "s"',
        'webhook = "https://example.com:0/x"\nsecret_file = "s"',
        'webhook = "https://example.com/x"',
        'command = ["true"]\nwebhook = "https://example.com/x"\nsecret_file = "s"',
        "command = []",
        "timeout_seconds = 5",
        'command = ["true"]\ntimeout_seconds = 301',
    ),
)
def test_an_invalid_alerts_section_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "steward.toml"
    path.write_text(CONFIG + text)
    with pytest.raises(PvdmError) as caught:
        load_config(path)
    assert caught.value.code == Code.CONFIG_INVALID


def test_a_webhook_on_loopback_or_with_tls_is_accepted(tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:9/x", "http://localhost/x", "https://example.com/x?token=a"):
        path = tmp_path / "steward.toml"
        path.write_text(f'{CONFIG}webhook = "{url}"\nsecret_file = "s"')
        assert load_config(path).alerts == WebhookAlerts(url, tmp_path / "s", 10, 900)


@for_each("mode", (0o644, 0o640))
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = write_secret(tmp_path)
    path.chmod(mode)
    with pytest.raises(PvdmError) as caught:
        open_alert_sender(WebhookAlerts("http://127.0.0.1/x", path, 10, 900))
    assert caught.value.code == Code.KEY_FILE_REFUSED


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    path = write_secret(tmp_path)
    path.write_bytes(b"short")
    with pytest.raises(PvdmError) as caught:
        open_alert_sender(WebhookAlerts("http://127.0.0.1/x", path, 10, 900))
    assert caught.value.code == Code.CONFIG_INVALID
