"""Checks the files of the oldest snapshot that remains against the proofs of publications whose snapshots expired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pvdm.lake.format.manifest.entry import FileContent, ManifestEntry
from pvdm.metadata.audit import checks
from pvdm.metadata.audit.changes import require_no_deletes
from pvdm.metadata.audit.checks import PublicationProofs
from pvdm.metadata.audit.report import CountedFiles
from pvdm.metadata.audit.statements import added_files, removed_paths
from pvdm.metadata.audit.walk import Walk, WalkedSnapshot
from pvdm.trust.refusal import refused

NO_FILES = CountedFiles(0, 0)


def check_oldest_snapshot(walk: Walk) -> CountedFiles:
    """Check every live file of the oldest snapshot: a proof names it, or it is older than all receipts.

    The walk checks all later changes, so that every file is covered. Returns the counts of the older data files.
    Nothing is checked if no snapshot has expired, or if older history already has a finding.
    """
    first = walk.walked[0] if walk.walked else None
    if first is None or not walk.has_expired or not walk.older_history_is_clean:
        return NO_FILES
    live: list[ManifestEntry] = []
    with first.notes.collect(changed=True):
        live.extend(read_live(walk, first, check_receipt=True))
    if first.notes.findings:
        return NO_FILES
    published = [*walk.expired_proofs, PublicationProofs(first.chunks)]
    proved_entries, older_entries = _split_entries(walk, first, live, published)
    first.notes.check(require_no_deletes, [entry.data_file for entry in proved_entries])
    first.notes.check(require_files_of_proofs, proved_entries, published)
    first.notes.check(require_rows, proved_entries, published)
    older_files = [each.data_file for each in older_entries if each.data_file.content is FileContent.DATA]
    return CountedFiles(len(older_files), sum(each.record_count for each in older_files))


def read_live(walk: Walk, each: WalkedSnapshot, *, check_receipt: bool) -> Iterator[ManifestEntry]:
    """The live entries of a snapshot; with `check_receipt`, each manifest must have the hash that the receipt binds."""
    snapshot, manifests = each.snapshot, walk.manifests
    listed = manifests.load_list(snapshot)
    hashes = checks.require_manifest_hashes(listed) if check_receipt else {}
    for manifest in listed.manifests:
        entries = manifests.read_entries(snapshot.snapshot_id, [manifest])
        if check_receipt:
            path = manifest.manifest_path
            checks.require_manifests(hashes, [(path, walk.files.seen[path].sha256)])
        yield from (entry for entry in entries if entry.is_live)


def _split_entries(
    walk: Walk, first: WalkedSnapshot, live: Sequence[ManifestEntry], published: Sequence[PublicationProofs]
) -> tuple[list[ManifestEntry], list[ManifestEntry]]:
    """Two lists: entries that these publications added or their proofs name, and entries older than all receipts."""
    if walk.past.first_without_receipt is None:
        return list(live), []
    published_ids = {receipt.predicate.new_snapshot_id for receipt in walk.expired} | {first.snapshot.snapshot_id}
    chunks = [chunk for each in published for chunk in each.chunks]
    named = removed_paths(chunks) | {file.published_path for file in added_files(chunks)}
    proved_entries: list[ManifestEntry] = []
    older_entries: list[ManifestEntry] = []
    for entry in live:
        is_proved = entry.snapshot_id in published_ids or entry.data_file.file_path in named
        (proved_entries if is_proved else older_entries).append(entry)
    return proved_entries, older_entries


def require_files_of_proofs(proved_entries: Iterable[ManifestEntry], published: Iterable[PublicationProofs]) -> None:
    """The live files are exactly those that the proofs added and did not remove, by path and size."""
    proved: dict[str, int] = {}
    for each in published:
        for path in removed_paths(each.chunks):
            proved.pop(path, None)
        proved |= {file.published_path: file.published_size_bytes for file in added_files(each.chunks)}
    files = (entry.data_file for entry in proved_entries if entry.data_file.content is FileContent.DATA)
    live = [(file.file_path, file.file_size_in_bytes) for file in files]
    checks.require_same_files("audit_files_carried_differ", set(proved.items()), live)


def require_rows(proved_entries: Iterable[ManifestEntry], published: Iterable[PublicationProofs]) -> None:
    """A chunk whose files are all live has as many rows as were verified. It is skipped if its proof has no count."""
    rows = {entry.data_file.file_path: entry.data_file.record_count for entry in proved_entries}
    for chunk in (chunk for each in published for chunk in each.chunks):
        paths = [file.published_path for file in chunk.proof.core.files.added]
        staged = chunk.proof.core.rows.staged
        if staged is None or not all(path in rows for path in paths):
            continue
        counted = sum(rows[path] for path in paths)
        if counted != staged:
            raise refused("audit_rows_differ", staged, counted)
