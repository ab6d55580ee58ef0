"""The dashboard for Grafana shows every metric that a served Steward has, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pvdm import Committed, Coordinator, VerificationFailed
from tests.support.steward.shop import ROWS, contract, shop_at, table_of

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana" / "steward.json"


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def response(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The response to Prometheus of a Steward that has published and refused rows, and has counted its vault."""
    with shop_at(tmp_path_factory.mktemp("shop")) as shop:
        shop.make("sales.orders")
        shop.protect(contract("sales.orders"))
        with Coordinator(shop.steward) as coordinator:
            lost = coordinator.execute_workload("a", lambda _s, _c: table_of(ROWS[:2]), table="sales.orders")
            assert isinstance(lost, VerificationFailed)
            done = coordinator.execute_workload("b", lambda _s, _c: table_of(ROWS), table="sales.orders")
            assert isinstance(done, Committed)
        shop.steward.notary.usage.count()
        code, text = shop.metrics()
        assert code == 200
        yield text


def list_expressions(dashboard: dict[str, Any]) -> list[str]:
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    variables = [each["definition"] for each in dashboard["templating"]["list"] if "definition" in each]
    assert targets
    assert variables
    return targets + variables


def find_names(expression: str) -> set[str]:
    return set(re.findall(r"\bpvdm_\w+", expression))


def list_metric_names(response: str) -> set[str]:
    """The names under which Prometheus stores the metrics of the response. A family without samples counts too."""
    found = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", response, re.MULTILINE):
        found |= {f"{name}_bucket"} if kind == "histogram" else {name}
    return {each for each in found if not each.endswith("_created")}


def test_every_metric_of_the_dashboard_is_in_the_response(dashboard: dict[str, Any], response: str) -> None:
    used = {name for expression in list_expressions(dashboard) for name in find_names(expression)}
    assert used - list_metric_names(response) == set()


def test_every_metric_of_the_response_is_in_the_dashboard(dashboard: dict[str, Any], response: str) -> None:
    used = {name for expression in list_expressions(dashboard) for name in find_names(expression)}
    assert list_metric_names(response) - used == set()


def test_every_label_of_an_expression_is_a_label_of_its_metric(dashboard: dict[str, Any], response: str) -> None:
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(response):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    checked = 0
    for expression in list_expressions(dashboard):
        used = {label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(", ")}
        used |= set(re.findall(r"[{,] ?(\w+)=~?\"", expression))
        known = set().union(*(labels.get(name, set()) for name in find_names(expression)))
        if known:
            assert used - known == set(), expression
            checked += len(used)
    assert checked > 20


def test_panels_do_not_overlap_and_have_texts(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + right, place["y"] + down) for right in range(place["w"]) for down in range(place["h"])}
        assert not cells & taken
        taken |= cells
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
