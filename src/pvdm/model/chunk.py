"""The parts of a source that are verified one by one (chunks): plan, ids, hashes, and names of attempts' branches."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code
from pvdm.model.canonical_json import Value, dump, parse
from pvdm.model.fields import Fields, invalid, require_sequence, require_sha256, require_text
from pvdm.model.filter.expression import Expression, parameters_of
from pvdm.model.filter.text import parse_expression
from pvdm.model.statements.proof import CHUNKS_MAX

CHUNK_DEFINITION_MAX_BYTES: Final = 65_536
CHUNK_ID_MAX_CHARACTERS: Final = 200
PLAN_VALUES_MAX_BYTES: Final = 16_777_216  # of all distinct values of the chunking columns
BRANCH_PREFIX: Final = "pvdm_"
"""The prefix of attempts' branches. On an upstream's table, a client can use it only for its attempt's branch."""

_PLAN: Final = "pvdm/chunk-plan/v1"  # distinguishes the plan's hash from other hashes
_ID_CHARACTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:+-")


@dataclass(frozen=True, slots=True)
class ChunkDefinition:
    """One part of the source: the rows for which the filter `where` is true, or the rows of the listed `files`.

    Either `where` or `files` is None. The filter has no parameters. The contract's own filter applies too.
    `source_sha256` binds the chunk to the source files from which it was planned (`pvdm.verify.chunk_files`). It is
    None if the plan's only chunk has every row, or if the definition only selects rows and is not verified.
    """

    chunk_id: str
    where: str | None
    files: tuple[str, ...] | None
    source_sha256: str | None = None

    def __post_init__(self) -> None:
        require_text(self.chunk_id, "the chunk id")
        if len(self.chunk_id) > CHUNK_ID_MAX_CHARACTERS:
            raise invalid("the chunk id", f"at most {CHUNK_ID_MAX_CHARACTERS} characters", str(len(self.chunk_id)))
        if (self.where is None) == (self.files is None):
            raise invalid("a chunk", "a filter or a list of files", "both or neither")
        if self.source_sha256 is not None:
            require_sha256(self.source_sha256, "the hash of a chunk's source files")
        size = len(self.to_bytes())
        if size > CHUNK_DEFINITION_MAX_BYTES:
            expected = f"at most {CHUNK_DEFINITION_MAX_BYTES} bytes"
            raise Code.RECORD_TOO_LARGE(reason="chunk_definition_too_large", expected=expected, got=str(size))
        if self.files is not None:
            require_sequence(self.files, "the files of a chunk", least=0, most=CHUNK_DEFINITION_MAX_BYTES)
        elif parameters_of(self.expression):
            raise invalid("the filter of a chunk", "literals", "a parameter")
        elif str(self.expression) != self.where:
            raise invalid("the filter of a chunk", "its canonical text", "another spelling")

    @property
    def expression(self) -> Expression:
        """The filter, not bound to a schema. A chunk of listed files has `true`."""
        return parse_expression("true" if self.where is None else self.where)

    def to_bytes(self) -> bytes:
        """The definition as canonical JSON."""
        rows: dict[str, Value] = {"where": self.where} if self.files is None else {"files": list(self.files)}
        return dump({"id": self.chunk_id, "source": self.source_sha256, **rows})

    @property
    def sha256(self) -> str:
        """The hash of the definition."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes) -> ChunkDefinition:
        """Parse what `to_bytes` wrote. Raises for any other spelling."""
        value = parse(data, size_max_bytes=CHUNK_DEFINITION_MAX_BYTES)
        by_files = isinstance(value, dict) and "files" in value
        fields = Fields(value, "a chunk", ("id", "source", "files" if by_files else "where"))
        source_sha256 = fields.optional_text("source")
        if by_files:
            return cls(fields.text("id"), None, fields.texts("files"), source_sha256)
        return cls(fields.text("id"), fields.text("where"), None, source_sha256)


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """The chunks of a workload in order. Every row that the contract's filter selects is in exactly one chunk."""

    chunks: tuple[ChunkDefinition, ...]

    def __post_init__(self) -> None:
        require_chunks(len(self.chunks), CHUNKS_MAX)
        repeated = [name for name, count in Counter(chunk.chunk_id for chunk in self.chunks).items() if count > 1]
        if repeated:
            raise Code.WORKLOAD_INVALID(reason="chunk_repeated", got=ascii(repeated[0]))

    def __iter__(self) -> Iterator[ChunkDefinition]:
        return iter(self.chunks)

    @property
    def sha256(self) -> str:
        """The plan's hash: over the hash of each definition, in the plan's order."""
        return hashlib.sha256(dump({"chunks": [chunk.sha256 for chunk in self.chunks], "kind": _PLAN})).hexdigest()


def require_chunks(count: int, most: int) -> None:
    """Raise unless a plan may have this many chunks: from 1 to `most`."""
    if not 1 <= count <= most:
        raise Code.WORKLOAD_INVALID(reason="chunks_too_many", expected=f"1 to {most} chunks", got=str(count))


def require_value_size(size: int) -> None:
    """Raise unless a value of a chunking column of this many bytes fits into the definition of its chunk."""
    if size > CHUNK_DEFINITION_MAX_BYTES:
        expected, got = f"values of at most {CHUNK_DEFINITION_MAX_BYTES} bytes", f"a value of {size} bytes"
        raise Code.RECORD_TOO_LARGE(reason="chunk_definition_too_large", expected=expected, got=got)


def require_values_size(size: int) -> None:
    """Raise unless a plan may keep this many bytes of values of its chunking columns."""
    if size > PLAN_VALUES_MAX_BYTES:
        expected, got = f"at most {PLAN_VALUES_MAX_BYTES} bytes of values", str(size)
        raise Code.RECORD_TOO_LARGE(reason="plan_values_too_large", expected=expected, got=got)


def readable_id(pairs: tuple[tuple[str, str], ...]) -> str:
    """The chunk id of these columns and values: `a=1,b=2`. A long id is cut and gets `~` and the whole id's hash."""
    whole = ",".join(f"{name}={value}" for name, value in pairs)
    if len(whole) <= CHUNK_ID_MAX_CHARACTERS:
        return whole
    mark = "~" + hashlib.sha256(whole.encode()).hexdigest()[:32]
    return whole[: CHUNK_ID_MAX_CHARACTERS - len(mark)] + mark


def escaped(text: str) -> str:
    """The text, with %XX for each byte of a character that ids do not allow. Different texts stay different."""
    return "".join(
        each if each in _ID_CHARACTERS else "".join(f"%{byte:02X}" for byte in each.encode()) for each in text
    )


def branch_of(attempt_id: str) -> str:
    """The name of the branch that the Steward creates for an attempt."""
    return f"{BRANCH_PREFIX}{attempt_id}"


def is_steward_branch(branch: str) -> bool:
    """Whether the name begins with the prefix of attempts' branches."""
    return branch.startswith(BRANCH_PREFIX)
