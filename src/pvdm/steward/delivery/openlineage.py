"""Sends OpenLineage events about workloads, built from the ledger by the library's classes.

Needs the package openlineage-python, so this module is imported only if steward.toml has `[lineage]`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import attr
from openlineage.client import event_v2 as lineage
from openlineage.client.facet_v2 import (
    RunFacet,
    dataset_version_dataset,
    error_message_run,
    output_statistics_output_dataset,
)
from openlineage.client.transport import Transport, get_default_factory
from requests import HTTPError, Response, Session

from pvdm.errors import Code
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import proofs, receipts
from pvdm.ledger.record.outbox import OutboxEvent
from pvdm.ledger.work import attempts, chunks, workloads
from pvdm.ledger.work.workloads import Workload
from pvdm.model.printable import iso_time
from pvdm.model.statements.verdict import Outcome
from pvdm.steward.config.lineage import LineageConfig, read_transport
from pvdm.steward.delivery.delivery import DeliveryError, Send
from pvdm.steward.work.lineage import RunStep
from pvdm.steward.work.opened import contract_of, decode_refusal
from pvdm.steward.work.sources import table_name
from pvdm.version import __version__

LINEAGE_IDS_MAX: Final = 1_000
"""The most ids of each kind (proofs, receipts, snapshots) that one event has."""

PRODUCER: Final = f"urn:pvdm:steward:{__version__}"
FACET_NAME: Final = "pvdm_publication"
FACET_SCHEMA: Final = "urn:pvdm:lineage:publication:v1"
# Transports that report a rejected event by an error. `composite` and `transform` contain others and are checked
# separately.
_TRANSPORTS: Final = ("amazon_datazone_api", "console", "file", "gcplineage", "http", "noop")
_RUN_IDS: Final = uuid.UUID("5f0f6d5e-52c8-4b8a-9d0c-3c0f4a1f7f21")  # the namespace of the ids of runs


@attr.define
class PublicationRunFacet(RunFacet):
    """The facet with ids of proofs, receipts and snapshots (docs/monitoring.md); fields are named as in OpenLineage."""

    workloadId: str  # noqa: N815
    proofIds: list[str]  # noqa: N815
    receiptIds: list[str]  # noqa: N815
    snapshotIds: list[str]  # noqa: N815
    leftOut: int  # noqa: N815 - ids beyond `LINEAGE_IDS_MAX`
    verdict: str | None = None

    @staticmethod
    def _get_schema() -> str:
        return FACET_SCHEMA


def run_id_of(steward: str, workload_id: str) -> str:
    """The run's id: the same for each step and each repeated run of a workload."""
    return str(uuid.uuid5(_RUN_IDS, json.dumps([steward, workload_id])))


def open_lineage_sender(config: LineageConfig, ledger: Ledger, *, steward: str, catalog: str) -> Send:
    """The function that builds an event from the ledger and sends it."""
    transport = _open_transport(config)
    build = EventBuilder(steward, config.namespace or catalog)

    def send(event: OutboxEvent) -> None:
        with ledger.read() as unit:
            run_event = build(unit, json.loads(event.body))
        try:
            transport.emit(run_event)
        except Exception as error:  # each transport has errors of its own
            raise DeliveryError(f"the OpenLineage transport failed: {type(error).__name__}") from None

    return send


def _open_transport(config: LineageConfig) -> Transport:
    settings = read_transport(config.config_file)
    _prepare(settings, config.config_file.name)
    try:
        return get_default_factory().create(settings)
    except Exception as error:  # whatever the library finds wrong
        message, expected = f"{config.config_file.name}: the transport cannot be opened", "one of openlineage-python"
        raise Code.CONFIG_INVALID(message, expected=expected, got=type(error).__name__) from None


def _prepare(settings: Any, file: str) -> None:
    """Give each transport `http` its session. Refuse transports that may lose an event without an error."""
    kind = settings.get("type") if isinstance(settings, dict) else None
    match kind:
        case "http":
            settings["session"] = _open_session()
        case "composite":
            if settings.get("continue_on_failure") is not False:
                raise Code.CONFIG_INVALID(
                    f"{file}: the transport composite would ignore failures",
                    expected="continue_on_failure: false",
                    got=ascii(settings.get("continue_on_failure", "no value"))[:80],
                    hint="set continue_on_failure: false; then an event that a transport does not accept is sent again",
                )
            inner = settings.get("transports")
            for each in inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list) else ():
                _prepare(each, file)
        case "transform":
            _prepare(settings.get("transport"), file)
        case str() if kind in _TRANSPORTS or ("." in kind and not kind.startswith("openlineage.")):
            pass  # with a dot, it is the operator's own class
        case _:
            raise Code.CONFIG_INVALID(
                f"{file}: a transport of this type cannot be used",
                expected=f"composite, transform, {', '.join(_TRANSPORTS)}, or a class of your own",
                got=ascii(kind)[:80],
                hint="use a transport that raises an error if an event was not accepted, for example http",
            )


def _open_session() -> Session:
    session = Session()
    session.trust_env = False  # no proxies of the environment, and no passwords of .netrc
    session.hooks["response"].append(_require_accepted)
    return session


def _require_accepted(response: Response, *_: Any, **__: Any) -> None:
    """Raise unless the status is from 200 to 299. The session calls this before it follows a redirect."""
    if not 200 <= response.status_code < 300:
        response.close()
        raise HTTPError(f"status {response.status_code}", response=response)


@dataclass(frozen=True, slots=True)
class EventBuilder:
    """Builds events with the library's classes."""

    steward: str
    namespace: str

    def __call__(self, unit: Unit, step: Mapping[str, Any]) -> lineage.RunEvent:
        """The event of a stored step. Raises DeliveryError while a publication has no receipt yet."""
        workload_id, kind = step["workload_id"], RunStep(step["step"])
        found = workloads.get(unit, workload_id)
        contract = contract_of(unit, found.opening.contract_hash)
        result = _read_result(unit, kind, found, step["attempt_id"])
        source = table_name(unit, found.opening.source) or contract.boundary.source.table or "files"
        target = table_name(unit, found.opening.table_uuid) or found.opening.table_uuid

        def version(snapshot_id: str | None) -> dict[str, Any]:
            if snapshot_id is None:
                return {}
            facet = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=snapshot_id, producer=PRODUCER)
            return {"version": facet}

        output = lineage.OutputDataset(
            self.namespace,
            target,
            facets=version(result.snapshot_ids[-1] if result.snapshot_ids else None),
            outputFacets=_output_facets(result),
        )
        return lineage.RunEvent(
            eventType=lineage.RunState[kind.value],
            eventTime=iso_time(step["at_micros"]),
            run=lineage.Run(run_id_of(self.steward, workload_id), facets=_run_facets(workload_id, result)),
            job=lineage.Job(self.namespace, f"{found.opening.domain}.{contract.product.product}", facets={}),
            inputs=[lineage.InputDataset(self.namespace, source, facets=version(found.source_snapshot_id))],
            outputs=[output],
            producer=PRODUCER,
        )


@dataclass(frozen=True, slots=True)
class _Result:
    """What was proved and published, or why an attempt failed."""

    verdict: Outcome | None = None
    proof_ids: tuple[str, ...] = ()
    receipt_ids: tuple[str, ...] = ()
    snapshot_ids: tuple[str, ...] = ()
    rows: int | None = None
    files: int | None = None
    problem: str | None = None


def _read_result(unit: Unit, kind: RunStep, workload: Workload, attempt_id: str | None) -> _Result:
    if kind is RunStep.FAIL and attempt_id is not None:
        return _read_failure(unit, attempt_id)
    return _Result() if kind is RunStep.START else _read_publications(unit, workload)


def _read_publications(unit: Unit, workload: Workload) -> _Result:
    """What the workload has published. Raises DeliveryError while a receipt is missing."""
    workload_id = workload.opening.workload_id
    published = chunks.list_publications(unit, workload_id)
    proved = proofs.list_of_publications(unit, workload_id)
    signed = receipts.list_by_workload(unit, workload_id)
    by_time = sorted(published, key=lambda each: each.at_micros)
    snapshot_ids = tuple(dict.fromkeys(each.snapshot_id for each in by_time))
    if receipts.find_without_receipt(unit, workload.opening.table_uuid, {int(each) for each in snapshot_ids}):
        raise DeliveryError("a receipt is not signed yet")
    extents = [each.extent for each in published]
    known = [each for each in extents if each is not None]
    counted = len(known) == len(extents)
    verdicts = {verdict for _, verdict in proved}
    return _Result(
        verdict=None if not verdicts else Outcome.FAIL if Outcome.FAIL in verdicts else Outcome.PASS,
        proof_ids=tuple(proof_id for proof_id, _ in proved),
        receipt_ids=tuple(each.receipt_id for each in signed),
        snapshot_ids=snapshot_ids,
        rows=sum(each.rows_added for each in known) if counted else None,
        files=sum(each.files_added for each in known) if counted else None,
    )


def _read_failure(unit: Unit, attempt_id: str) -> _Result:
    """Why the attempt failed: the code, and the classes of a FAIL.

    The error's text is left out, because it may contain values of rows.
    """
    refusal = decode_refusal(attempts.get(unit, attempt_id).reason)
    of_attempt = proofs.list_by_attempt(unit, attempt_id)
    last = of_attempt[-1] if of_attempt else None
    classes = [] if last is None else json.loads(last.summary).get("classes", [])
    code = "unknown" if refusal is None else refusal.reason
    return _Result(
        verdict=None if last is None else last.verdict,
        proof_ids=() if last is None else (last.proof_id,),
        problem=f"{code}: {', '.join(classes)}" if classes else code,
    )


def _output_facets(result: _Result) -> dict[str, Any]:
    if result.rows is None:
        return {}
    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=result.rows, fileCount=result.files, producer=PRODUCER
    )
    return {"outputStatistics": facet}


def _run_facets(workload_id: str, result: _Result) -> dict[str, Any]:
    facets: dict[str, Any] = {FACET_NAME: _make_publication_facet(workload_id, result)}
    if result.problem is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=result.problem, programmingLanguage="none", producer=PRODUCER
        )
    return facets


def _make_publication_facet(workload_id: str, result: _Result) -> PublicationRunFacet:
    lists = (result.proof_ids, result.receipt_ids, result.snapshot_ids)
    proof_ids, receipt_ids, snapshot_ids = (list(each[:LINEAGE_IDS_MAX]) for each in lists)
    return PublicationRunFacet(
        workloadId=workload_id,
        verdict=None if result.verdict is None else result.verdict.value,
        proofIds=proof_ids,
        receiptIds=receipt_ids,
        snapshotIds=snapshot_ids,
        leftOut=sum(max(0, len(each) - LINEAGE_IDS_MAX) for each in lists),
        producer=PRODUCER,
    )
