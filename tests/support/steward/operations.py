"""The operations of the service: which roles may call each, and valid request bodies for some."""

from __future__ import annotations

from typing import Any

from tests.support.steward.http import REASON

OAUTH = "/catalog/v1/oauth/tokens"
# The roles of each operation, repeated on purpose: an accidental change of the service's own table fails a test.
ALL_BUT_WORKER = "attestor auditor consumer operator producer publisher steward"
READERS = "auditor consumer operator publisher"
WORK_READERS = "auditor operator producer publisher"
CATALOG_READERS = "auditor consumer operator producer publisher steward"
CATALOG_WRITERS = "operator producer"
COMMITTERS = "operator producer publisher steward"
NAMESPACES = "/catalog/v1/namespaces"
TABLES = "/catalog/v1/namespaces/{namespace}/tables"
VIEWS = "/catalog/v1/namespaces/{namespace}/views"
ALLOWED = {
    "GET /healthz": "",
    "GET /readyz": "",
    "GET /v1/openapi.json": "",
    f"POST {OAUTH}": "",
    "GET /metrics": "auditor operator",
    "GET /v1/identity": f"{ALL_BUT_WORKER} worker",
    "GET /v1/steward": ALL_BUT_WORKER,
    "GET /v1/trust-root": ALL_BUT_WORKER,
    "POST /v1/trust-root": "operator",
    "GET /v1/epochs": "auditor operator",
    "POST /v1/epochs": "operator",
    "POST /v1/epochs/{number}/activate": "operator",
    "POST /v1/epochs/{number}/retire": "operator",
    "POST /v1/epochs/{number}/revoke": "operator",
    "POST /v1/clock/confirm": "operator",
    "GET /v1/events": "auditor operator",
    "GET /v1/jobs": "auditor operator",
    "GET /v1/newest-workloads": WORK_READERS,
    "GET /v1/workloads": WORK_READERS,
    "POST /v1/workloads": "producer",
    "GET /v1/workloads/{workload_id}": WORK_READERS,
    "GET /v1/workloads/{workload_id}/chunks": WORK_READERS,
    "POST /v1/workloads/{workload_id}/lease": "producer",
    "POST /v1/workloads/{workload_id}/lease/renew": "producer",
    "POST /v1/workloads/{workload_id}/lease/release": "producer",
    "POST /v1/workloads/{workload_id}/attempts": "producer",
    "POST /v1/workloads/{workload_id}/abandon": "operator",
    "POST /v1/publications": "producer",
    "GET /v1/orphans": "auditor operator producer",
    "POST /v1/orphans/remove": "operator producer",
    "GET /v1/quarantine": "auditor operator",
    "POST /v1/quarantine/remove": "operator",
    "GET /v1/attempts/{attempt_id}": WORK_READERS,
    "POST /v1/attempts/{attempt_id}/staged": "producer",
    "POST /v1/attempts/{attempt_id}/abort": "producer",
    "POST /v1/attempts/{attempt_id}/tokens": "producer",
    "GET /v1/proofs": "auditor consumer operator producer publisher",
    "GET /v1/proofs/{proof_id}": "auditor consumer operator producer publisher",
    "GET /v1/proofs/{proof_id}/envelope": READERS,
    "GET /v1/proofs/{proof_id}/bundle": READERS,
    "POST /v1/proofs/{proof_id}/open": "auditor",
    "GET /v1/overrides": READERS,
    "POST /v1/overrides": "operator",
    "POST /v1/overrides/{override_id}/publish": "operator",
    "GET /v1/targets/{kind}": "auditor operator",
    "GET /v1/protected": CATALOG_READERS,
    "GET /v1/protections": READERS,
    "POST /v1/protections": "operator",
    "GET /v1/contracts/{contract_sha256}": "auditor consumer operator producer publisher",
    "GET /v1/migrations": "auditor operator",
    "GET /v1/migrations/{migration_id}": "auditor operator",
    "POST /v1/migrations": "operator",
    "GET /v1/lost-claims": "auditor operator",
    "POST /v1/claim-releases": "operator",
    "GET /v1/tables/{table}/audit": "auditor operator",
    "GET /v1/tables/{table}/audit/receipts": "auditor operator",
    "GET /v1/tables/{table}/audit/statements": "auditor operator",
    "GET /v1/tables/{table}/audit/files": "auditor operator",
    "POST /v1/tables/{table}/audit/report": "auditor",
    "POST /v1/attestations/challenges": "attestor",
    "POST /v1/attestations": "attestor",
    "GET /v1/attestations": "attestor auditor operator",
    "POST /v1/keys/redeem": "worker",
    "GET /v1/log/checkpoint": ALL_BUT_WORKER,
    "GET /v1/log/tile/{path:path}": ALL_BUT_WORKER,
    "GET /v1/log/entries/{index}/proof": ALL_BUT_WORKER,
    "GET /v1/log/consistency": ALL_BUT_WORKER,
    "GET /catalog/v1/config": CATALOG_READERS,
    f"GET {NAMESPACES}": CATALOG_READERS,
    f"POST {NAMESPACES}": CATALOG_WRITERS,
    f"GET {NAMESPACES}/{{namespace}}": CATALOG_READERS,
    f"HEAD {NAMESPACES}/{{namespace}}": CATALOG_READERS,
    f"DELETE {NAMESPACES}/{{namespace}}": CATALOG_WRITERS,
    f"POST {NAMESPACES}/{{namespace}}/properties": CATALOG_WRITERS,
    f"POST {NAMESPACES}/{{namespace}}/register": CATALOG_WRITERS,
    f"GET {TABLES}": CATALOG_READERS,
    f"POST {TABLES}": CATALOG_WRITERS,
    f"GET {TABLES}/{{table}}": CATALOG_READERS,
    f"HEAD {TABLES}/{{table}}": CATALOG_READERS,
    f"POST {TABLES}/{{table}}": COMMITTERS,
    f"DELETE {TABLES}/{{table}}": CATALOG_WRITERS,
    f"GET {TABLES}/{{table}}/credentials": CATALOG_READERS,
    f"POST {TABLES}/{{table}}/metrics": CATALOG_READERS,
    "POST /catalog/v1/tables/rename": CATALOG_WRITERS,
    "POST /catalog/v1/transactions/commit": COMMITTERS,
    f"GET {VIEWS}": CATALOG_READERS,
    f"POST {VIEWS}": CATALOG_WRITERS,
    "POST /catalog/v1/namespaces/{namespace}/register-view": CATALOG_WRITERS,
    f"GET {VIEWS}/{{view}}": CATALOG_READERS,
    f"HEAD {VIEWS}/{{view}}": CATALOG_READERS,
    f"POST {VIEWS}/{{view}}": CATALOG_WRITERS,
    f"DELETE {VIEWS}/{{view}}": CATALOG_WRITERS,
    "POST /catalog/v1/views/rename": CATALOG_WRITERS,
}
LEASE_BODY = {"run_id": "ab" * 16, "lease_number": 1}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/workloads/{workload_id}/lease": {"run_id": "ab" * 16, "runner": "a test"},
    "/v1/workloads/{workload_id}/lease/renew": LEASE_BODY,
    "/v1/workloads/{workload_id}/lease/release": LEASE_BODY,
    "/v1/workloads/{workload_id}/attempts": {**REASON, "chunk_id": "all", "lease_number": 1},
    "/v1/attempts/{attempt_id}/abort": {**REASON, "lease_number": 1},
    "/v1/tables/{table}/audit/report": {"codes": ["audit_proof_missing"], "violations": 1},
    "/v1/attempts/{attempt_id}/tokens": {"secret_sha256": "ab" * 32},
}
