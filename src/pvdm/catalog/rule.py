"""The rule: on a protected table no commit changes what `main` shows, however spelled; before is held to after."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.catalog.visibility import shows_same
from pvdm.errors import NotAllowedError
from pvdm.lake.format.json.document import Json, canonical
from pvdm.lake.format.json.node import Raw
from pvdm.lake.format.schema.document import normal_form
from pvdm.lake.format.table.main_state import MainState
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, RefType, Snapshot, SnapshotRef
from pvdm.lake.write.branches import reached
from pvdm.ledger.record.tokens import Grant
from pvdm.model.branch import BRANCH_PREFIX, branch_of, is_stewards
from pvdm.model.role import Role

REF_NAME_MAX_CHARACTERS: Final = 255
FENCE_PREFIX: Final = "pvdm-fence-"
"""Refs of the Steward's own: one keeps a publication that was taken back from being shown late (docs/upstreams.md)."""
_SAID: Final = 2
_SAID_CHARACTERS: Final = 40
_KEY: Final = "encryption key "
# What only a publication makes other; everything else that main shows is a matter of a migration.
_PUBLISHED: Final = frozenset({"current snapshot", "ancestry", "retention of main", "snapshot log"})
_TO_PUBLISH: Final = "write to a branch (spark.wap.branch; needs write.wap.enabled=true), then run `pvdm publish`"
_TO_MIGRATE: Final = "propose it with `pvdm migrate`"
_STATISTICS: Final = ("statistics", "partition statistics")
_TO_LEAVE: Final = "statistics of what main shows are not taken from writers"
_STAGING: Final = frozenset({Role.PRODUCER, Role.OPERATOR, Role.STEWARD})
_TAGGING: Final = frozenset({Role.PUBLISHER, Role.OPERATOR})


@dataclass(frozen=True, slots=True)
class RefChange:
    """One ref before and after; None where it is not there."""

    name: str
    before: SnapshotRef | None
    after: SnapshotRef | None

    @property
    def is_tag(self) -> bool:
        """Whether it is, or was, a tag."""
        return any(ref is not None and ref.type is RefType.TAG for ref in (self.before, self.after))

    @property
    def is_branch(self) -> bool:
        """Whether it is, or was, a branch."""
        return any(ref is not None and ref.type is RefType.BRANCH for ref in (self.before, self.after))


def require_main_unchanged(before: TableMetadata, after: TableMetadata, name: str) -> None:
    """What `main` shows, and everything that decides how it is read, is the same before and after, to the byte."""
    changed = MainState.of(before).changed(MainState.of(after))
    if changed and all(fact.startswith(_KEY) for fact in changed):
        raise NotAllowedError(
            "encryption_keys_gated",
            f"{name} is protected: its encryption keys would change; write to its branches without encryption",
        )
    if changed:
        said = ", ".join(fact[:_SAID_CHARACTERS] for fact in changed[:_SAID])
        more = " and more" if len(changed) > _SAID else ""
        raise gated(name, f"{said}{more} of main would change", to=_way(changed))
    if not shows_same(before, after, but_tags=any(change.is_tag for change in ref_changes(before, after))):
        raise gated(name, "what main shows would be spelled in another way", to="leave it as it is")


def _way(changed: Sequence[str]) -> str:
    """What a writer does instead."""
    if any(fact in _PUBLISHED or fact.startswith("snapshot ") for fact in changed):
        return _TO_PUBLISH
    return _TO_LEAVE if all(fact.startswith(_STATISTICS) for fact in changed) else _TO_MIGRATE


def require_structure_unchanged(before: TableMetadata, after: TableMetadata, name: str) -> None:
    """Column and partition ids, and schemas that nothing shows yet, are main's future: a migration changes them."""
    for what, old, new in (
        ("the last column id", before.last_column_id, after.last_column_id),
        ("the last partition id", before.last_partition_id, after.last_partition_id),
        ("the schemas", *_schemas(before, after)),
    ):
        if old != new:
            raise NotAllowedError("structure_gated", f"{name} is protected: {what} would change; {_TO_MIGRATE}")


def require_refs_allowed(before: TableMetadata, after: TableMetadata, grant: Grant, own_branch: str | None) -> None:
    """Branches belong to staging; tags point into main's ancestry and are set by those who may."""
    shown = {snapshot.snapshot_id for snapshot in _ancestry(after)}
    for change in ref_changes(before, after):
        if change.name == MAIN:
            continue
        require_ref_name(change, after)
        if change.is_tag:
            require_tag(change, grant, shown)
        if change.is_branch:
            require_staging(change, grant, own_branch)
    require_tagged_unchanged(before, after)


def require_reserved_kept(before: TableMetadata, after: TableMetadata, grant: Grant) -> None:
    """What keeps a late publication out is put up and taken down by the Steward alone, protected or not.

    That is its fence, and then that its staging branch is gone: the name of one never comes again.
    """
    if grant.role is Role.STEWARD:
        return
    own = None if grant.attempt_id is None else branch_of(grant.attempt_id)
    for change in ref_changes(before, after):
        anew = change.before is None and is_stewards(change.name) and change.name != own
        if anew or change.name.startswith(FENCE_PREFIX):
            raise NotAllowedError(
                "ref_reserved",
                "refs of this name are the Steward's own",
                expected=f"another name than {FENCE_PREFIX}… or {BRANCH_PREFIX}…",
                got=ascii(change.name[:80]),
                hint="nothing was changed; the Steward makes and removes them itself, with the attempt they belong to",
            )


def require_ref_name(change: RefChange, after: TableMetadata) -> None:
    """A new ref is not taken for main, nor for a snapshot: people and readers go by the name alone."""
    name = change.name
    if change.before is not None:
        return
    letters = "".join(each for each in unicodedata.normalize("NFKC", name).casefold() if each.isalnum())
    plain = len(name) <= REF_NAME_MAX_CHARACTERS and name.isprintable() and name.strip() == name
    if not plain or letters == MAIN or (name.isascii() and name.isdigit() and after.snapshot(int(name)) is not None):
        raise NotAllowedError(
            "ref_name_misleading",
            "the name of the new branch or tag could be taken for something else",
            expected=f"up to {REF_NAME_MAX_CHARACTERS} printable characters, neither like main nor a snapshot's id",
            got=ascii(name[:80]),
        )


def require_tag(change: RefChange, grant: Grant, shown: set[int]) -> None:
    """A tag is what consumers see, so it points at what was published, by who may publish."""
    if grant.role not in _TAGGING:
        raise NotAllowedError(
            "tag_not_allowed",
            f"the tag {change.name!r} of a protected table is not for this role",
            expected=" or ".join(sorted(_TAGGING)),
            got=grant.role,
        )
    if change.after is not None and (change.after.type is not RefType.TAG or change.after.snapshot_id not in shown):
        raise NotAllowedError(
            "tag_outside_main",
            f"the tag {change.name!r} would show what main never showed",
            expected="a snapshot of main's ancestry",
            got=str(change.after.snapshot_id),
            hint="publish the data first; a tag then marks it",
        )


def require_tagged_unchanged(before: TableMetadata, after: TableMetadata) -> None:
    """A tag that stays shows what it showed, though it was set before the table was protected, and outside of main."""
    for name, ref in sorted(before.refs.items()):
        kept = after.refs.get(name)
        if ref.type is not RefType.TAG or kept is None or kept.snapshot_id != ref.snapshot_id:
            continue
        old, new = before.snapshot(ref.snapshot_id), after.snapshot(ref.snapshot_id)
        if old is not None and new is not None and not _same(old.raw, new.raw):
            raise NotAllowedError(
                "tagged_snapshot_changed",
                f"the tag {name[:80]!a} would show something else under the same id",
                expected=f"snapshot {ref.snapshot_id} as it was",
                got="another one",
            )


def require_staging(change: RefChange, grant: Grant, own_branch: str | None) -> None:
    """A staging branch is moved by producers; a token for one attempt moves that attempt's branch only."""
    if grant.role not in _STAGING:
        raise NotAllowedError(
            "branch_not_allowed",
            f"the branch {change.name!r} of a protected table is not for this role",
            expected=" or ".join(sorted(_STAGING)),
            got=grant.role,
        )
    if own_branch is not None and change.name != own_branch:
        raise NotAllowedError(
            "branch_of_other_attempt",
            "the token is good for one attempt's branch only",
            expected=own_branch,
            got=change.name,
        )


def require_snapshots_on_branches(before: TableMetadata, after: TableMetadata, name: str) -> None:
    """A new snapshot hangs on a branch: one that no ref holds could be picked up later, past every check."""
    held = reached(after, (ref.snapshot_id for ref in after.refs.values()))
    loose = [each.snapshot_id for each in added_snapshots(before, after) if each.snapshot_id not in held]
    if loose:
        raise NotAllowedError(
            "snapshot_without_branch",
            f"{name} is protected: a snapshot would be added that no branch holds",
            expected="a staging branch",
            got=str(loose[0]),
            hint="write to a branch (`spark.wap.branch`), not with `spark.wap.id`",
        )


def require_branches_whole(before: TableMetadata, after: TableMetadata, name: str) -> None:
    """No snapshot is taken out of the middle of a branch that stays: what is left could never be proved to follow main.

    Expiry does just that, on every branch of the table, whoever stages there.
    """
    gone = {each.snapshot_id for each in before.snapshots} - {each.snapshot_id for each in after.snapshots}
    if not gone:
        return
    parents = {each.snapshot_id: each.parent_id for each in (*before.snapshots, *after.snapshots)}
    walked: set[int] = set()  # by all refs together: where one has passed, no other need
    for ref_name, ref in sorted(after.refs.items()):
        at: int | None = ref.snapshot_id
        while at is not None and at not in walked:
            if at in gone:
                raise NotAllowedError(
                    "branch_cut",
                    f"{name} is protected: the history of {ref_name[:80]!a} would be cut",
                    expected="whole branches to go, or whole branches to stay",
                    got=f"snapshot {at} without them",
                    hint="remove branches that are done; expiry waits until then",
                )
            walked.add(at)
            at = parents.get(at)


def require_own_snapshots(
    before: TableMetadata, after: TableMetadata, grant: Grant, own_branch: str | None, name: str
) -> None:
    """Snapshots come, go and get statistics by those who stage; with a token for one attempt on its branch alone."""
    touched = {each.snapshot_id for each in (*added_snapshots(before, after), *added_snapshots(after, before))}
    touched |= {snapshot_id for snapshot_id, _ in _statistics(before) ^ _statistics(after)}
    if grant.role not in _STAGING:
        theirs = touched
    elif own_branch is None:
        theirs = set()
    else:
        own = _held(before, after, lambda ref: ref == own_branch)
        theirs = touched - (own - _held(before, before, lambda ref: ref != own_branch))
    if theirs:
        raise NotAllowedError(
            "snapshot_not_own",
            f"{name} is protected: the token may not change this snapshot",
            expected="no change of any snapshot" if own_branch is None else f"a snapshot of {own_branch} alone",
            got=str(min(theirs)),
        )


def added_snapshots(before: TableMetadata, after: TableMetadata) -> list[Snapshot]:
    """Those that are in `after` and were not in `before`; one that came back under its id with other words counts."""
    # A commit keeps the very objects of what it does not touch: only the few others are compared.
    kept = set(map(id, before.snapshots))
    return [each for each in after.snapshots if id(each) not in kept and not _is_in(before, each)]


def _same(old: Raw | None, new: Raw) -> bool:
    return old is new or (old is not None and canonical(old) == canonical(new))


def _is_in(before: TableMetadata, snapshot: Snapshot) -> bool:
    old = before.snapshot(snapshot.snapshot_id)
    return old is not None and old.canonical() == snapshot.canonical()


def _held(before: TableMetadata, after: TableMetadata, wanted: Callable[[str], bool]) -> set[int]:
    heads = [[ref.snapshot_id for name, ref in each.refs.items() if wanted(name)] for each in (before, after)]
    return reached(before, heads[0]) | reached(after, heads[1])


def _statistics(metadata: TableMetadata) -> set[tuple[int, str]]:
    files = (*metadata.statistics, *metadata.partition_statistics)
    return {(file.snapshot_id, canonical(file.raw)) for file in files}


def ref_changes(before: TableMetadata, after: TableMetadata) -> Iterator[RefChange]:
    """Every ref that is other afterwards."""
    for name in sorted({*before.refs, *after.refs}):
        old, new = before.refs.get(name), after.refs.get(name)
        if old is None or new is None or not _same(old.raw, new.raw):
            yield RefChange(name, old, new)


def as_updates(changes: Iterable[RefChange]) -> list[Json]:
    """What a commit says to make these changes."""
    found: list[Json] = []
    for change in changes:
        if change.before is not None:
            found.append({"action": "remove-snapshot-ref", "ref-name": change.name})
        if change.after is not None:
            found.append({**change.after.raw, "action": "set-snapshot-ref", "ref-name": change.name})
    return found


def tag_unavailable() -> NotAllowedError:
    """The one answer to a tag that only hidden things stand against: it says nothing of which they are, or how many."""
    return NotAllowedError("tag_unavailable", "the table does not take this tag", hint="choose another name")


def gated(name: str, what: str, *, to: str = _TO_PUBLISH) -> NotAllowedError:
    """The one sentence that a writer sees who tries `main` of a protected table: what is gated, and what to do."""
    return NotAllowedError("main_gated", f"{name} is protected: {what}; {to}")


def _ancestry(metadata: TableMetadata) -> list[Snapshot]:
    current = metadata.current_snapshot_id
    return [] if current is None else list(metadata.ancestry(current))


def _schemas(before: TableMetadata, after: TableMetadata) -> tuple[str, str]:
    """With their content: a schema that is taken out and put back under its id is another one."""
    raws = [[id(schema.raw) for schema in each.schemas] for each in (before, after)]
    if raws[0] == raws[1]:
        return "", ""  # the very same objects, which nobody changes
    old, new = (
        "; ".join(f"{schema.schema_id}: {normal_form(schema.raw)}" for schema in each.schemas)
        for each in (before, after)
    )
    return old, new
