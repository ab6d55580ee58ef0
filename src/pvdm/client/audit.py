"""Calls of an auditor: a table's metadata document, its signed statements with inclusion proofs, and its manifests."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from pvdm.api.proofs import AUDIT_IDS_MAX, AuditReported, AuditReportRequest, AuditView, LoggedList, LoggedView
from pvdm.client.calls import Calls, Query, build_request, new_post, number_text, page_query, sha256_text
from pvdm.errors import Code


class AuditCalls(Calls):
    """The part of the client that an audit uses; it verifies nothing."""

    def audit(self, table: str) -> AuditView:
        """The table as it is now, with the newest checkpoint of the log and the table's approvals."""
        return self._get(_audit_path(table), AuditView)

    def audit_receipts(
        self, table: str, *, size: int, after: int | None = None, limit: int = 100
    ) -> tuple[LoggedView, ...]:
        """Receipts after the log index `after`, with inclusion proofs for a log of `size` entries; empty at the end."""
        query = {"size": number_text(size, "size of the log"), **page_query(after, limit)}
        return self._get(f"{_audit_path(table)}/receipts", LoggedList, query).statements

    def audit_statements(self, table: str, ids: Sequence[str], *, size: int) -> tuple[LoggedView, ...]:
        """Those of these proofs and overrides that fit into one response, with inclusion proofs for `size` entries."""
        if not 1 <= len(ids) <= AUDIT_IDS_MAX:
            message, expected = "the number of ids is out of range", f"1 to {AUDIT_IDS_MAX}"
            raise Code.REQUEST_INVALID(message, reason="page_size_invalid", expected=expected, got=str(len(ids)))
        joined = ",".join(sha256_text(each, "statement id") for each in ids)
        query: Query = {"size": number_text(size, "size of the log"), "ids": joined}
        return self._get(f"{_audit_path(table)}/statements", LoggedList, query).statements

    def audit_file(self, table: str, snapshot_id: int, manifest: str | None = None) -> bytes:
        """The manifest list of a snapshot in `main`'s history; with `manifest`, this manifest, which the list names."""
        query: tuple[tuple[str, str], ...] = (("snapshot_id", number_text(snapshot_id, "snapshot id")),)
        if manifest is not None:
            query = (*query, ("manifest", manifest))
        return self._get_bytes(f"{_audit_path(table)}/files", query)

    def report_audit(self, table: str, codes: Sequence[str], violations: int) -> bool:
        """Report violations that an audit of the table found; returns whether the Steward sends an alert."""
        body = build_request(AuditReportRequest, codes=sorted(set(codes))[:AUDIT_IDS_MAX], violations=violations)
        return self._read(new_post(f"{_audit_path(table)}/report", body, repeatable=True), AuditReported).alerted


def _audit_path(table: str) -> str:
    """The path of the table's audit. Raises for a name that is empty, only dots, or has a slash."""
    given: object = table  # a caller without type checks may pass anything
    if not isinstance(given, str) or not given or "/" in given or given.strip(".") == "":
        message = "the table's name cannot be accepted"
        raise Code.IDENTIFIER_INVALID(message, expected="namespace.table", got=ascii(given)[:80])
    return f"/v1/tables/{quote(given, safe='')}/audit"
