"""No secret of a Steward is left anywhere but in its own home; the same search finds what was planted in each place."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pvdm.model.role import Role
from pvdm.steward.config.resources import open_keys
from pvdm.steward.config.steward import FileKeys
from pvdm.steward.http import door, openapi
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
    Things,
    crashed,
    left_behind,
    listening,
    made,
    note_keys,
    plant,
    prepared,
    provoked,
    reopened,
    rows,
    served_by_command,
    shown,
    token_files,
    told_by,
    used,
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
KINDS = {"key", "passphrase", "handle", "worker's", "released", "attempt's", "exchanged"} | {
    f"{role.value}'s" for role in Role
}
FRAMES = (
    "steward/record/proofs.py",
    "steward/access.py",
    "steward/record/attestations.py",
    "client/wire.py",
    "keys/handles.py",
)
# The door's frames hold the request as it came in, header and all; nothing prints them.
HOLDS_THE_REQUEST = ("http/door.py", "http/oauth.py")


def searched(folder: Path) -> Search:
    """One Steward's life, first as a process of its own, then in this one with all loggers at DEBUG."""
    found = Search()
    stand = made(folder / "steward", found)
    things = prepared(stand, found)
    tokens = token_files(stand, folder / "client", found)
    (folder / "client" / "notes").write_text("\n".join(FORMS))
    plant(stand)
    stand.notary.close()
    with served_by_command(stand, found) as url:
        used(url, tokens, things, found, nonce="11" * 16)
        provoked(url, tokens, things, found)
    with pytest.MonkeyPatch.context() as patch:
        in_this_process(stand, tokens, things, found, patch)
    note_keys(stand, found)
    left_behind(stand, found)
    stand.notary.close()
    found.files("client files", folder / "client", without=tuple(tokens.values()))
    return found


def in_this_process(
    stand: Stand, tokens: dict[Role, Path], things: Things, found: Search, patch: pytest.MonkeyPatch
) -> None:
    reopened(stand)
    for module in (openapi, service_routes):
        patch.setattr(module, "__version__", " ".join(FORMS))
    render = Metrics.render
    patch.setattr(Metrics, "render", lambda self: render(self) + f"# {' '.join(FORMS)}\n".encode())

    def record_exception(context: RequestContext, error: BaseException) -> None:
        found.place("exceptions", *shown(error, without=HOLDS_THE_REQUEST))
        log_exception(context, error)

    patch.setattr(door, "log_exception", record_exception)
    with listening() as everything, start(stand.notary) as server:
        used(server.url, tokens, things, found, nonce="22" * 16)
        provoked(server.url, tokens, things, found)
        for point in ("ledger.before_commit", "ledger.after_commit"):
            with fault.armed(point, fault.Raise(RuntimeError("a crash"))):
                crashed(server.url, tokens, things, found)
    found.place("log lines", *everything.lines)
    found.place("exceptions", *refused_desks(stand, tokens))


def refused_desks(stand: Stand, tokens: dict[Role, Path]) -> list[str]:
    """What the desks raise when they are given a secret and refuse it."""
    access, text = stand.notary.access, tokens[Role.AUDITOR].read_text().strip()
    keys = stand.config.keys
    assert isinstance(keys, FileKeys)
    assert keys.passphrase_file is not None
    book = LedgerEpochs(stand.notary.ledger, stand.notary.clock)
    told = told_by(lambda: access.exchange("00" * 16, text))
    token_id = access.authenticate(text).token_id
    access.revoke(token_id)
    told += told_by(lambda: access.authenticate(text))
    told += told_by(lambda: access.exchange(token_id, text))
    for form in FORMS:
        told += told_by(lambda: stand.notary.work.workload(stand.grant(), form))  # noqa: B023 - called at once
    keys.passphrase_file.write_text(PASSPHRASE + " or so\n")
    told += told_by(lambda: open_keys(keys, book))
    keys.passphrase_file.write_text("")
    told += told_by(lambda: open_keys(keys, book))
    keys.passphrase_file.write_text(PASSPHRASE)
    return told


def test_no_secret_is_in_any_place_in_which_the_same_search_finds_a_planted_one(tmp_path: Path) -> None:
    search = searched(tmp_path)
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
    """How the planted secret was found."""
    return {name.split()[0].removesuffix("url") for name in traces(PLANTED, haystack)}


def dumped(postgresql: Postgresql, url: str) -> bytes:
    """The database as `pg_dump` writes it, binary columns in hexadecimal."""
    database = url.removeprefix("postgresql://pvdm@/").partition("?")[0]
    program = (postgresql._binaries / "initdb").resolve().with_name("pg_dump")
    command = [str(program), "-h", str(postgresql.folder), "-U", "pvdm", "--inserts", database]
    return subprocess.run(command, check=True, capture_output=True).stdout


def test_no_secret_is_found_in_a_ledger_on_postgresql(tmp_path: Path, postgresql: Postgresql) -> None:
    found = Search()
    stand = made(tmp_path / "steward", found, ledger_url=postgresql.fresh("template0"))
    with start(stand.notary) as server:
        tokens, things = token_files(stand, tmp_path / "client", found), prepared(stand, found)
        used(server.url, tokens, things, found, nonce="44" * 16)
    note_keys(stand, found)
    plant(stand)
    dump = dumped(postgresql, stand.config.ledger_url)
    haystacks = {"rows": b"\n".join(rows(stand.notary.ledger)), "dump": dump}
    stand.notary.close()
    for name, haystack in haystacks.items():
        assert spellings(haystack) >= {"raw", "hex", "base64"}, name
        assert [secret for secret in found.secrets if traces(found.secrets[secret], haystack)] == [], name
