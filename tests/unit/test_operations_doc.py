"""The pages for operators name only commands, options, routes, metrics and settings that exist."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import click

from pvdm.cli.app import pvdm
from pvdm.steward.config.steward import CatalogConfig, load_config
from pvdm.steward.http.roles import RULES
from tests.support.for_each import for_each

ROOT = Path(__file__).parents[2]
PAGES = ("concepts.md", "errors.md", "operations.md", "procedures.md", "restore.md", "security.md", "verification.md")
TEXTS = {page: (ROOT / "docs" / page).read_text("utf-8") for page in PAGES}
OPERATIONS = TEXTS["operations.md"]
METRICS = "".join(
    (ROOT / "src" / "pvdm" / "steward" / "http" / name).read_text("utf-8") for name in ("metrics.py", "work_metrics.py")
)


def commands() -> list[tuple[str, str]]:
    """The page and the text of every command line in a code span or a console block."""
    found = set()
    for page, text in TEXTS.items():
        lines = re.findall(r"`(pvdm [a-z][^`]*)`", text) + re.findall(r"^\$ (pvdm .*)$", text, re.MULTILINE)
        found |= {(page, line) for line in lines}
    return sorted(found)


def resolve(line: str) -> tuple[click.Command, list[str]]:
    """The command that a line names, and the remaining words of the line."""
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = pvdm
    while isinstance(command, click.Group) and words:
        inner = command.get_command(click.Context(command), words[0])
        assert inner is not None, f"there is no `{words[0]}` in `{line}`"
        command, words = inner, words[1:]
    return command, words


@for_each(("page", "line"), commands())
def test_a_command_on_a_page_exists(page: str, line: str) -> None:
    command, words = resolve(line)
    known = {name for parameter in command.params for name in parameter.opts}
    assert [word for word in words if word.startswith("--") and word not in known] == []


def test_the_pages_name_more_than_15_commands() -> None:
    assert len(commands()) > 15


def test_every_route_on_the_page_exists() -> None:
    named = set(re.findall(r"`(GET|POST) (/[^` ]+)`", OPERATIONS))
    assert len(named) > 5
    assert named - RULES.keys() == set()


def metrics() -> set[str]:
    """Every metric that the service shows."""
    names = {f"pvdm_steward_{name}" for name in re.findall(r'_gauges?\(\s*"(\w+)"', METRICS)}
    names |= set(re.findall(r'(?:Gauge|Histogram)(?:MetricFamily)?\(\s*"(\w+)"', METRICS))
    return names | {f"{name}_total" for name in re.findall(r'(?:Counter|CounterMetricFamily)\(\s*"(\w+)"', METRICS)}


def test_every_metric_on_the_page_exists() -> None:
    named = {name.removesuffix("_bucket") for name in re.findall(r"(pvdm_steward_\w+)", OPERATIONS)}
    assert named - metrics() == set()


def test_every_metric_has_an_alert_that_uses_it() -> None:
    alerts = re.findall(r"^\| `(pvdm_steward_\w+)` \| `(.*?)`.*? \| .*? \| \S.* \|$", OPERATIONS, re.MULTILINE)
    assert metrics() - {metric for metric, _ in alerts} == set()
    assert [(metric, expression) for metric, expression in alerts if metric not in expression] == []


def test_the_example_of_a_configuration_is_accepted(tmp_path: Path) -> None:
    [example] = re.findall(r"^```toml\n(.*?)^```$", OPERATIONS, re.MULTILINE | re.DOTALL)
    path = tmp_path / "steward.toml"
    path.write_text(example, "utf-8")
    config = load_config(path)
    assert (config.notary, config.service.limits.concurrent) == ("notary-a", 32)
    assert config.ledger_url == f"sqlite:///{tmp_path / 'ledger.db'}"
    assert config.catalog == CatalogConfig("file:///srv/lake/warehouse", Path("/srv/lake/catalog"), "lake")


def test_every_key_of_the_catalog_is_on_the_page_with_its_default(tmp_path: Path) -> None:
    keys = "".join(f"\n{line}" for line in ('home = "file"', 'path = "keys"'))
    path = tmp_path / "steward.toml"
    path.write_text(f'notary = "n"\norigin = "o"\nledger = "sqlite:///l"\noutside = "c"\n[keys]{keys}\n[catalog]\n')
    found = load_config(path).catalog
    assert found is not None
    defaults = {"name": found.name, "warehouse": Path(found.warehouse).name, "metadata": Path(str(found.metadata)).name}
    defaults["vault"] = Path(str(found.vault)).name
    assert found.upstreams == ()
    defaults["upstreams"] = "none"
    assert defaults.keys() == {field.name for field in dataclasses.fields(CatalogConfig)}
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \| \S", OPERATIONS, re.MULTILINE))
    assert {key: rows.get(key) for key in defaults} == defaults
