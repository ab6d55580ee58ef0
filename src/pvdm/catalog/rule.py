"""The rule for protected tables: only a commit with a permit, of the gate or a migration, changes what `main` shows."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.catalog.responses import list_main_history, shows_same
from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import Json, JsonObject, comparison_text
from pvdm.lake.format.schema.document import normal_form
from pvdm.lake.format.table.main_state import MainState
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, RefType, Snapshot, SnapshotRef
from pvdm.lake.snapshot_removal import find_reachable
from pvdm.ledger.record.tokens import Grant
from pvdm.model.chunk import BRANCH_PREFIX, branch_of, is_steward_branch
from pvdm.model.role import Role

REF_NAME_MAX_CHARACTERS: Final = 255
FENCE_PREFIX: Final = "pvdm-fence-"  # of fences: refs that make a late publication fail (docs/upstreams.md)
_FACTS_LISTED_MAX: Final = 2
_FACT_CHARACTERS_MAX: Final = 40
# The names of facts are those of `MainState`.
_KEY_FACT_PREFIX: Final = "encryption key "
# Facts that only a publication changes; a migration changes everything else that main shows.
_PUBLISHED_FACTS: Final = frozenset({"current snapshot", "ancestry", "retention of main", "snapshot log"})
_TO_PUBLISH: Final = "write to a branch (spark.wap.branch; needs write.wap.enabled=true), then run `pvdm publish`"
_TO_MIGRATE: Final = "propose it with `pvdm migrate`"
_STATISTICS_PREFIXES: Final = ("statistics", "partition statistics")
_NOT_FROM_WRITERS: Final = "statistics of what main shows are not taken from writers"
_STAGING_ROLES: Final = frozenset({Role.PRODUCER, Role.OPERATOR, Role.STEWARD})
_TAGGING_ROLES: Final = frozenset({Role.PUBLISHER, Role.OPERATOR})


@dataclass(frozen=True, slots=True)
class RefChange:
    """One ref before and after a commit. None if it does not exist then."""

    name: str
    before: SnapshotRef | None
    after: SnapshotRef | None

    def has_type(self, kind: RefType) -> bool:
        """Whether the ref is, or was, of this type."""
        return any(ref is not None and ref.type is kind for ref in (self.before, self.after))


def require_main_unchanged(before: TableMetadata, after: TableMetadata, name: str) -> None:
    """Raise if anything changes, even one byte, that `main` shows or that decides how `main` is read."""
    changed = MainState.of(before).changed(MainState.of(after))
    if changed and all(fact.startswith(_KEY_FACT_PREFIX) for fact in changed):
        message = f"{name} is protected: its encryption keys would change; write to its branches without encryption"
        raise Code.CHANGE_GATED(message, reason="encryption_keys_gated")
    if changed:
        listed = ", ".join(fact[:_FACT_CHARACTERS_MAX] for fact in changed[:_FACTS_LISTED_MAX])
        more = " and more" if len(changed) > _FACTS_LISTED_MAX else ""
        raise main_gated_error(name, f"{listed}{more} of main would change", next_step=_suggest_step(changed))
    # Tags that consumers see may change; `require_tag_allowed` checks them.
    changes_tags = any(change.has_type(RefType.TAG) for change in ref_changes(before, after))
    if not shows_same(before, after, ignore_refs=changes_tags):
        raise main_gated_error(name, "the bytes of what main shows would change", next_step="send it unchanged")


def _suggest_step(changed: Sequence[str]) -> str:
    """What a writer that would change these facts can do instead."""
    if any(fact in _PUBLISHED_FACTS or fact.startswith("snapshot ") for fact in changed):
        return _TO_PUBLISH
    return _NOT_FROM_WRITERS if all(fact.startswith(_STATISTICS_PREFIXES) for fact in changed) else _TO_MIGRATE


def require_structure_unchanged(before: TableMetadata, after: TableMetadata, name: str) -> None:
    """Raise if the last column id, the last partition id or the schemas change: they affect `main` later."""
    for what, old, new in (
        ("the last column id", before.last_column_id, after.last_column_id),
        ("the last partition id", before.last_partition_id, after.last_partition_id),
        ("the schemas", *_schema_texts(before, after)),
    ):
        if old != new:
            message = f"{name} is protected: {what} would change; {_TO_MIGRATE}"
            raise Code.CHANGE_GATED(message, reason="structure_gated")


def require_refs_allowed(before: TableMetadata, after: TableMetadata, grant: Grant, own_branch: str | None) -> None:
    """Raise unless the grant may make each change of a branch or tag. An attempt's token may change `own_branch`."""
    shown = {snapshot.snapshot_id for snapshot in list_main_history(after)}
    for change in ref_changes(before, after):
        if change.name == MAIN:
            continue
        require_ref_name(change, after)
        if change.has_type(RefType.TAG):
            require_tag_allowed(change, grant, shown)
        if change.has_type(RefType.BRANCH):
            require_branch_allowed(change, grant, own_branch)
    require_tagged_unchanged(before, after)


def require_reserved_kept(before: TableMetadata, after: TableMetadata, grant: Grant) -> None:
    """Raise if another role than the Steward changes a fence, or creates a staging branch other than its attempt's.

    A late publication takes effect only while its fence is absent and its branch exists.
    """
    if grant.role is Role.STEWARD:
        return
    own = None if grant.attempt_id is None else branch_of(grant.attempt_id)
    for change in ref_changes(before, after):
        is_new_staging_branch = change.before is None and is_steward_branch(change.name) and change.name != own
        if is_new_staging_branch or change.name.startswith(FENCE_PREFIX):
            others = f"another name than {FENCE_PREFIX}… or {BRANCH_PREFIX}…"
            raise Code.BRANCH_REFUSED(reason="ref_reserved", expected=others, got=ascii(change.name[:80]))


def require_ref_name(change: RefChange, after: TableMetadata) -> None:
    """Raise if the name of a new ref could be taken for main or for a snapshot id."""
    name = change.name
    if change.before is not None:
        return
    # Case, punctuation and forms of letters do not matter to a reader: "Main." looks like main.
    letters = "".join(each for each in unicodedata.normalize("NFKC", name).casefold() if each.isalnum())
    is_plain = len(name) <= REF_NAME_MAX_CHARACTERS and name.isprintable() and name.strip() == name
    is_number = is_plain and name.isascii() and name.isdigit()
    if not is_plain or letters == MAIN or (is_number and after.snapshot(int(name)) is not None):
        expected = f"up to {REF_NAME_MAX_CHARACTERS} printable characters, neither like main nor a snapshot's id"
        raise Code.BRANCH_REFUSED(reason="ref_name_misleading", expected=expected, got=ascii(name[:80]))


def require_tag_allowed(change: RefChange, grant: Grant, shown: set[int]) -> None:
    """Raise unless the role may set tags, which consumers see, and the tag points to one of the snapshots `shown`."""
    if grant.role not in _TAGGING_ROLES:
        message, got = f"the tag {change.name!r} of a protected table is not for this role", grant.role
        raise Code.TAG_REFUSED(message, reason="tag_not_allowed", expected=" or ".join(sorted(_TAGGING_ROLES)), got=got)
    if change.after is not None and (change.after.type is not RefType.TAG or change.after.snapshot_id not in shown):
        message = f"the tag {change.name!r} would show what main never showed"
        raise Code.TAG_REFUSED(message, reason="tag_outside_main", got=str(change.after.snapshot_id))


def require_tagged_unchanged(before: TableMetadata, after: TableMetadata) -> None:
    """Raise if a tag keeps its snapshot id but the snapshot's content changes, in `main`'s history or outside of it."""
    for name, ref in sorted(before.refs.items()):
        kept = after.refs.get(name)
        if ref.type is not RefType.TAG or kept is None or kept.snapshot_id != ref.snapshot_id:
            continue
        old, new = before.snapshot(ref.snapshot_id), after.snapshot(ref.snapshot_id)
        if old is not None and new is not None and not _is_same(old.raw, new.raw):
            message = f"the tag {name[:80]!a} would show something else under the same id"
            expected = f"snapshot {ref.snapshot_id} as it was"
            raise Code.TAG_REFUSED(message, reason="tagged_snapshot_changed", expected=expected, got="another one")


def require_branch_allowed(change: RefChange, grant: Grant, own_branch: str | None) -> None:
    """Raise unless the role may move staging branches; with a token for one attempt, only that attempt's branch."""
    if grant.role not in _STAGING_ROLES:
        message = f"the branch {change.name!r} of a protected table is not for this role"
        expected = " or ".join(sorted(_STAGING_ROLES))
        raise Code.BRANCH_REFUSED(message, reason="branch_not_allowed", expected=expected, got=grant.role)
    if own_branch is not None and change.name != own_branch:
        raise Code.BRANCH_REFUSED(reason="branch_of_other_attempt", expected=own_branch, got=change.name)


def require_snapshots_on_branches(before: TableMetadata, after: TableMetadata, name: str) -> None:
    """Raise if no ref reaches a new snapshot: it could be made visible later without these checks."""
    reached = find_reachable(after, (ref.snapshot_id for ref in after.refs.values()))
    loose = [each.snapshot_id for each in added_snapshots(before, after) if each.snapshot_id not in reached]
    if loose:
        message = f"{name} is protected: a snapshot would be added that is on no branch"
        raise Code.CHANGE_GATED(message, reason="snapshot_without_branch", got=str(loose[0]))


def require_branches_whole(before: TableMetadata, after: TableMetadata, name: str) -> None:
    """Raise if a snapshot is removed from the history of a ref that stays: the rest could not be proved."""
    gone = {each.snapshot_id for each in before.snapshots} - {each.snapshot_id for each in after.snapshots}
    if not gone:
        return
    parents = {each.snapshot_id: each.parent_id for each in (*before.snapshots, *after.snapshots)}
    walked: set[int] = set()  # shared by all refs, so that no snapshot is visited twice
    for ref_name, ref in sorted(after.refs.items()):
        at: int | None = ref.snapshot_id
        while at is not None and at not in walked:
            if at in gone:
                message = f"{name} is protected: the history of {ref_name[:80]!a} would be cut"
                got = f"a branch that stays, without its snapshot {at}"
                raise Code.BRANCH_REFUSED(message, reason="branch_cut", got=got)
            walked.add(at)
            at = parents.get(at)


def require_own_snapshots(
    before: TableMetadata, after: TableMetadata, grant: Grant, own_branch: str | None, name: str
) -> None:
    """Raise if a role that does not stage changes any snapshot or its statistics.

    An attempt's token may change only snapshots that its branch (`own_branch`) reaches and no other ref reached before.
    """
    added, removed = added_snapshots(before, after), added_snapshots(after, before)
    touched = {each.snapshot_id for each in (*added, *removed)}
    touched |= {snapshot_id for snapshot_id, _ in _statistics(before) ^ _statistics(after)}
    if grant.role not in _STAGING_ROLES:
        foreign = touched
    elif own_branch is None:
        foreign = set()
    else:
        on_own_branch = _reached_by((before, after), lambda ref: ref == own_branch)
        on_others = _reached_by((before,), lambda ref: ref != own_branch)
        foreign = touched - (on_own_branch - on_others)
    if foreign:
        message = f"{name} is protected: the token may not change this snapshot"
        expected = "no change of any snapshot" if own_branch is None else f"a snapshot of {own_branch} alone"
        raise Code.CHANGE_GATED(message, reason="snapshot_not_own", expected=expected, got=str(min(foreign)))


def added_snapshots(before: TableMetadata, after: TableMetadata) -> list[Snapshot]:
    """The snapshots of `after` that are not in `before`, including those with the same id and other content."""
    # A commit keeps the same objects for what it does not change. Only the few others need a comparison.
    kept = set(map(id, before.snapshots))
    return [each for each in after.snapshots if id(each) not in kept and not _is_in(before, each)]


def _is_same(old: JsonObject | None, new: JsonObject) -> bool:
    return old is new or (old is not None and comparison_text(old) == comparison_text(new))


def _is_in(before: TableMetadata, snapshot: Snapshot) -> bool:
    old = before.snapshot(snapshot.snapshot_id)
    return old is not None and old.comparison_text() == snapshot.comparison_text()


def _reached_by(documents: Iterable[TableMetadata], is_wanted: Callable[[str], bool]) -> set[int]:
    """The snapshots that the wanted refs of these documents reach."""
    reached: set[int] = set()
    for each in documents:
        reached |= find_reachable(each, [ref.snapshot_id for name, ref in each.refs.items() if is_wanted(name)])
    return reached


def _statistics(metadata: TableMetadata) -> set[tuple[int, str]]:
    """All statistics files: the id of the snapshot, and the file's entry as text."""
    files = (*metadata.statistics, *metadata.partition_statistics)
    return {(file.snapshot_id, comparison_text(file.raw)) for file in files}


def ref_changes(before: TableMetadata, after: TableMetadata) -> Iterator[RefChange]:
    """Every ref that differs before and after a commit."""
    for name in sorted({*before.refs, *after.refs}):
        old, new = before.refs.get(name), after.refs.get(name)
        if old is None or new is None or not _is_same(old.raw, new.raw):
            yield RefChange(name, old, new)


def to_updates(changes: Iterable[RefChange]) -> list[Json]:
    """The Iceberg updates that make these changes."""
    found: list[Json] = []
    for change in changes:
        if change.before is not None:
            found.append({"action": "remove-snapshot-ref", "ref-name": change.name})
        if change.after is not None:
            found.append({**change.after.raw, "action": "set-snapshot-ref", "ref-name": change.name})
    return found


def tag_unavailable_error() -> PvdmError:
    """The error for a tag that conflicts with hidden refs: always the same, so that it does not disclose them."""
    return Code.TAG_REFUSED(reason="tag_unavailable")


def main_gated_error(name: str, what: str, *, next_step: str = _TO_PUBLISH) -> PvdmError:
    """The error for a writer that would change `main` of a protected table. `what` is a clause: what would happen."""
    return Code.CHANGE_GATED(f"{name} is protected: {what}; {next_step}", reason="main_gated")


def _schema_texts(before: TableMetadata, after: TableMetadata) -> tuple[str, str]:
    """The schemas before and after, as texts. Ids are not enough: a schema may be replaced under its id."""
    if [id(schema.raw) for schema in before.schemas] == [id(schema.raw) for schema in after.schemas]:
        return "", ""  # the same objects, which are immutable
    old, new = (
        "; ".join(f"{schema.schema_id}: {normal_form(schema.raw)}" for schema in each.schemas)
        for each in (before, after)
    )
    return old, new
