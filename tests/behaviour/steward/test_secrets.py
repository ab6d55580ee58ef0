"""No secret of a Steward leaks into a searched place. In each place the same search finds a planted secret."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pvdm.model.role import Role
from pvdm.steward.config.resources import open_keys
from pvdm.steward.config.steward import FileKeys
from pvdm.steward.http import admission, openapi
from pvdm.steward.http.metrics import Metrics
from pvdm.steward.http.request import RequestContext
from pvdm.steward.http.v1 import service as service_routes
from pvdm.steward.logs import log_exception
from pvdm.steward.record.epochs import LedgerEpochs
from pvdm.steward.server import start
from tests.support import fault
from tests.support.ledger.databases import Postgresql
from tests.support.steward.notary import Stand
from tests.support.steward.secret_search import traces
from tests.support.steward.secrets import (
    FORMS,
    PASSPHRASE,
    PLANTED,
    Search,
    Targets,
    call_crashing_routes,
    call_every_route,
    collect_all_logs,
    collect_left_files,
    create_steward,
    note_keys,
    plant,
    prepare_targets,
    reopen,
    rows,
    send_refused_requests,
    serve_by_command,
    texts_of_error,
    texts_of_refusal,
    token_files,
)

PLACES = (
    "answers",
    "client files",
    "client objects",
    "command line",
    "environment",
    "error answers",
    "exceptions",
    "ledger's file",
    "ledger's rows",
    "log lines",
    "metrics",
    "openapi",
    "outside checkpoint",
    "tiles and archive",
)
# The first words of the secrets' names.
KINDS = {"key", "passphrase", "handle", "worker's", "released", "attempt's", "exchanged"} | {
    f"{role.value}'s" for role in Role
}
# Modules whose frames must be among the searched exceptions.
FRAMES = (
    "steward/record/proofs.py",
    "steward/access.py",
    "steward/record/attestations.py",
    "client/wire.py",
    "keys/handles.py",
)
# Frames that hold the whole request with its token are not searched: nothing prints them.
REQUEST_FRAMES = ("http/admission.py", "http/oauth.py")


def run_and_search(folder: Path) -> Search:
    """Run a Steward, first as another process, then in this one with all loggers at DEBUG, and collect all places."""
    search = Search()
    stand = create_steward(folder / "steward", search)
    things = prepare_targets(stand, search)
    tokens = token_files(stand, folder / "client", search)
    (folder / "client" / "notes").write_text("\n".join(FORMS))
    plant(stand)
    stand.notary.close()
    with serve_by_command(stand, search) as url:
        call_every_route(url, tokens, things, search, nonce="11" * 16)
        send_refused_requests(url, tokens, things, search)
    with pytest.MonkeyPatch.context() as patch:
        run_in_this_process(stand, tokens, things, search, patch)
    note_keys(stand, search)
    collect_left_files(stand, search)
    stand.notary.close()
    search.files("client files", folder / "client", without=tuple(tokens.values()))
    return search


def run_in_this_process(
    stand: Stand, tokens: dict[Role, Path], things: Targets, search: Search, patch: pytest.MonkeyPatch
) -> None:
    reopen(stand)
    for module in (openapi, service_routes):
        patch.setattr(module, "__version__", " ".join(FORMS))
    render = Metrics.render
    patch.setattr(Metrics, "render", lambda self: render(self) + f"# {' '.join(FORMS)}\n".encode())

    def record_exception(context: RequestContext, error: BaseException) -> None:
        search.place("exceptions", *texts_of_error(error, without=REQUEST_FRAMES))
        log_exception(context, error)

    patch.setattr(admission, "log_exception", record_exception)
    with collect_all_logs() as everything, start(stand.notary) as server:
        call_every_route(server.url, tokens, things, search, nonce="22" * 16)
        send_refused_requests(server.url, tokens, things, search)
        for point in ("ledger.before_commit", "ledger.after_commit"):
            with fault.armed(point, fault.Raise(RuntimeError("a crash"))):
                call_crashing_routes(server.url, tokens, things, search)
    search.place("log lines", *everything.lines)
    search.place("exceptions", *list_errors_of_refused_secrets(stand, tokens))


def list_errors_of_refused_secrets(stand: Stand, tokens: dict[Role, Path]) -> list[str]:
    """The errors of services that refuse a secret, with the local variables of their frames."""
    access, text = stand.notary.access, tokens[Role.AUDITOR].read_text().strip()
    keys = stand.config.keys
    assert isinstance(keys, FileKeys)
    assert keys.passphrase_file is not None
    book = LedgerEpochs(stand.notary.ledger, stand.notary.clock)
    errors = texts_of_refusal(lambda: access.exchange("00" * 16, text))
    token_id = access.authenticate(text).token_id
    access.revoke(token_id)
    errors += texts_of_refusal(lambda: access.authenticate(text))
    errors += texts_of_refusal(lambda: access.exchange(token_id, text))
    for form in FORMS:
        errors += texts_of_refusal(lambda: stand.notary.work.get_workload_detail(stand.grant(), form))  # noqa: B023 - called now
    keys.passphrase_file.write_text(PASSPHRASE + " or so\n")
    errors += texts_of_refusal(lambda: open_keys(keys, book))
    keys.passphrase_file.write_text("")
    errors += texts_of_refusal(lambda: open_keys(keys, book))
    keys.passphrase_file.write_text(PASSPHRASE)
    return errors


def test_no_secret_is_found_in_the_places_where_a_planted_one_is_found(tmp_path: Path) -> None:
    search = run_and_search(tmp_path)
    assert tuple(sorted(search.places)) == PLACES
    assert {name.split()[0] for name in search.secrets} == KINDS
    assert sum(name.startswith("key ") for name in search.secrets) >= 4
    assert [frame for frame in FRAMES if frame.encode() not in search.places["exceptions"]] == []
    missed = {place: {"raw", "hex", "base64"} - spellings(search.places[place]) for place in PLACES}
    assert {place: forms for place, forms in missed.items() if forms} == {}
    leaks = {
        (place, name): found
        for place in PLACES
        for name, secret in search.secrets.items()
        if (found := traces(secret, search.places[place]))
    }
    assert leaks == {}


def spellings(haystack: bytes) -> set[str]:
    """The encodings in which the planted secret was found: raw, hex, base64."""
    return {name.split()[0].removesuffix("url") for name in traces(PLANTED, haystack)}


def dump_database(postgresql: Postgresql, url: str) -> bytes:
    """The database as `pg_dump` writes it, binary columns in hexadecimal."""
    database = url.removeprefix("postgresql://pvdm@/").partition("?")[0]
    program = (postgresql._binaries / "initdb").resolve().with_name("pg_dump")
    command = [str(program), "-h", str(postgresql.folder), "-U", "pvdm", "--inserts", database]
    return subprocess.run(command, check=True, capture_output=True).stdout


def test_no_secret_is_found_in_a_ledger_on_postgresql(tmp_path: Path, postgresql: Postgresql) -> None:
    search = Search()
    stand = create_steward(tmp_path / "steward", search, ledger_url=postgresql.create_database("template0"))
    with start(stand.notary) as server:
        tokens, things = token_files(stand, tmp_path / "client", search), prepare_targets(stand, search)
        call_every_route(server.url, tokens, things, search, nonce="44" * 16)
    note_keys(stand, search)
    plant(stand)
    dump = dump_database(postgresql, stand.config.ledger_url)
    haystacks = {"rows": b"\n".join(rows(stand.notary.ledger)), "dump": dump}
    stand.notary.close()
    for name, haystack in haystacks.items():
        assert spellings(haystack) >= {"raw", "hex", "base64"}, name
        assert [secret for secret in search.secrets if traces(search.secrets[secret], haystack)] == [], name
