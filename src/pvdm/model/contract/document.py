"""The schema of `pvdm/v1` contracts. The published JSON Schema and the reference page are generated from it."""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from pvdm.model.filter.text import EXPRESSION_MAX_CHARACTERS
from pvdm.model.schema import COLUMNS_MAX, NAME_MAX_BYTES

CONTRACT_TEXT_MAX_CHARACTERS: Final = 4_096
BOUNDS_MAX: Final = 10_000  # of chunking by ranges

PARAMETER_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
TABLE_UUID: Final = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
SIZE: Final = r"^[1-9][0-9]{0,15}(KiB|MiB|GiB|TiB)?$"  # a number of bytes


def _tag_of(value: object) -> str:
    """The tag of the union member for this value. Only the value's type decides, so that errors name one member."""
    tags: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (NoneType, "(null)"),
        (bool, "(boolean)"),  # before int, whose subclass it is
        (int, "(integer)"),
        (str, "(text)"),
        ((dict, BaseModel), "(mapping)"),
    )
    return next((tag for kind, tag in tags if isinstance(value, kind)), "(list)")


_Null = Annotated[None, Tag("(null)")]
_Boolean = Annotated[bool, Tag("(boolean)")]
_Integer = Annotated[int, Tag("(integer)")]
_Text = Annotated[str, Field(max_length=CONTRACT_TEXT_MAX_CHARACTERS), Tag("(text)")]
_Scalar = Annotated[_Text | _Integer | _Boolean | _Null, Discriminator(_tag_of)]
_Bound = Annotated[_Text | _Integer, Discriminator(_tag_of)]
_Size = Annotated[
    Annotated[str, Field(pattern=SIZE), Tag("(text)")] | Annotated[int, Field(ge=1, lt=10**16), Tag("(integer)")],
    Discriminator(_tag_of),
]
_Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX_BYTES)]
_Table = Annotated[str, Field(pattern=r"^[^.\s`/]+(\.[^.\s`/]+)+$", max_length=NAME_MAX_BYTES)]
_Label = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
_Duration = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,6}[smhd]$")]
_Words = Annotated[str, Field(max_length=CONTRACT_TEXT_MAX_CHARACTERS)]


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        use_attribute_docstrings=True,
    )


class Metadata(_Part):
    """Whose data product it is."""

    domain: _Label
    """The domain that owns the target."""
    product: _Label
    """The product's name."""
    owner: Annotated[str, Field(min_length=1, max_length=256)]
    """The person or team to contact."""
    description: _Words = ""
    """What consumers get."""


class Parameter(_Part):
    """A value that every workload gives, and that its proofs contain. In filters and partitions it is `${name}`."""

    type: Literal["string", "boolean", "int", "long", "date", "timestamp", "timestamptz", "uuid"]
    """The type of its value."""
    description: _Words = ""
    """What it means."""


class Files(_Part):
    """Parquet files as a source."""

    manifest: Annotated[str, Field(min_length=1, max_length=CONTRACT_TEXT_MAX_CHARACTERS)]
    """Where the list of the files is, with the size and SHA-256 of each."""


class Source(_Part):
    """Where the intended rows are: `table` or `files`, one of the two."""

    table: _Table | None = None
    """A table of the Steward's catalog, as namespace.name; its snapshot is pinned when a workload is opened."""
    uuid: Annotated[str, Field(pattern=TABLE_UUID)] | None = None
    """The UUID of `table`. Left out: the UUID of the table of this name from which the target got rows before."""
    files: Files | None = None
    """Parquet files that a manifest lists with their hashes."""


class Column(_Part):
    """One column of the target."""

    from_: Annotated[_Name, Field(alias="from")]
    """The source's column."""
    to: _Name | None = None
    """Its name in the target. Left out: the same name."""
    type: Annotated[str, Field(max_length=64)] | None = None
    """A wider type that loses nothing: long from int, double from float, decimal of the same scale with more digits."""


class Claim(_Part):
    """What an append workload claims, so that a retry under another id cannot publish the same rows again."""

    column: _Name
    """Each workload claims a value or a range of this column, which `where` must bound."""


_ColumnOrName = Annotated[Annotated[_Name, Tag("(text)")] | Annotated[Column, Tag("(mapping)")], Discriminator(_tag_of)]


_Filter = Annotated[
    str,
    Field(min_length=1, max_length=EXPRESSION_MAX_CHARACTERS),
    BeforeValidator(lambda value: "true" if value is True else value),  # YAML reads the filter `true` as a boolean
    WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1, "maxLength": EXPRESSION_MAX_CHARACTERS}, {"const": True}]}
    ),
]


class Boundary(_Part):
    """What one workload may touch, and nothing else."""

    source: Source
    """Where the intended rows are."""
    where: _Filter = "true"
    """Which rows of the source, in the closed grammar of filters; a plain `true` is every row."""
    columns: Annotated[list[_ColumnOrName], Field(min_length=1, max_length=COLUMNS_MAX)] | None = None
    """The target's columns, each a name or a mapping. Left out: all of the source's, under their own names."""
    target: _Table
    """The table that is published, as namespace.name."""
    operation: Literal["append", "overwrite-partitions", "overwrite"]
    """Add rows; or replace each whole partition that has a selected row; or replace everything."""
    partition: Annotated[dict[_Name, _Scalar], Field(max_length=64)] = {}
    """Partition values that every published file must have; a value may be null, and `${name}` is a parameter."""
    claim: Claim | None = None
    """For `append`. Left out: a workload claims the whole target, so only one workload can publish rows."""


class Chunking(_Part):
    """How the source is divided into chunks, which are staged, verified and proved one by one."""

    by: Literal["none", "partition", "files", "range"]
    """`none`: one chunk. `partition`: by values of columns. `files`: by groups of source files. `range`: by ranges."""
    columns: Annotated[list[_Name], Field(max_length=16)] = []
    """For `partition`: a chunk for each combination of these columns' values, and one for other rows, if any."""
    max_size: _Size | None = None
    """For `files`: the most bytes of source files in a chunk, such as 512MiB; a larger file is a chunk of its own."""
    column: _Name | None = None
    """For `range`: the column."""
    bounds: Annotated[list[_Bound], Field(max_length=BOUNDS_MAX)] = []
    """For `range`: inner bounds in rising order; each begins a chunk; null, if there is any, has a chunk of its own."""


class Exclusion(_Part):
    """A column that is not compared."""

    column: _Name
    """The target's column."""
    reason: Annotated[str, Field(min_length=1, max_length=CONTRACT_TEXT_MAX_CHARACTERS)]
    """Why consumers do not rely on the column; every proof contains this reason."""


class Content(_Part):
    """The content projection: every column of the target except those that are left out here."""

    exclude: Annotated[list[Exclusion], Field(max_length=COLUMNS_MAX)] = []
    """The columns that are not compared, each with its reason."""


class Projections(_Part):
    """Which columns of the target are digested and compared."""

    identity: Annotated[list[_Name], Field(min_length=1, max_length=64)]
    """The key columns of the target."""
    content: Content = Content()
    """Columns that are not compared. Left out: every column of the target is compared."""


class Repair(_Part):
    """What happens after a failed attempt. A new attempt always stages and verifies the whole chunk."""

    automatic: Annotated[int, Field(ge=0, le=99)] = 0
    """How many failed attempts at a chunk the same run repeats without `pvdm repair`."""


class Governance(_Part):
    """What happens on FAIL, and what a publication needs besides a PASS."""

    on_fail: Literal["quarantine", "delete"] = "quarantine"
    """What happens to staged files after a FAIL; break-glass can publish files from quarantine."""
    sample_keys: Annotated[list[Literal["producer", "operator", "auditor"]], Field(max_length=3)] = [
        "operator",
        "auditor",
    ]
    """Roles that may see the key values of wrong rows."""
    attestation: Literal["none", "required"] = "none"
    """Whether the source must be attested. `required`: not served yet."""
    threshold: Annotated[int, Field(ge=1, le=16)] = 1
    """Notaries that must agree. Above 1: not served yet."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """Attempts at one chunk that may fail, in verification or at the gate; rolled-back ones do not count."""
    repair: Repair = Repair()
    """What happens after a failed attempt. Left out: a person repairs the job and calls `pvdm repair`."""
    proof_lifetime: _Duration = "24h"
    """How long a proof can be used: a number with s, m, h or d, at most 7d."""


class Limits(_Part):
    """Upper limits of one workload's plan, and of each attempt."""

    chunks: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    """Chunks of one workload."""
    files: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000
    """Files that one attempt stages. Values above 20,000, such as the default, mean 20,000."""
    rows: Annotated[int, Field(ge=1, le=10**15)] = 10**12
    """Rows that one attempt stages."""
    size: _Size = "10TiB"
    """Bytes that one attempt stages."""


class Document(_Part):
    """The contract of a data product."""

    api_version: Annotated[Literal["pvdm/v1"], Field(alias="apiVersion")]
    """The version of this schema."""
    kind: Literal["DataProduct"]
    """What the document declares: a data product."""
    metadata: Metadata
    """Whose data product it is."""
    parameters: Annotated[
        dict[Annotated[str, Field(pattern=PARAMETER_NAME)], Parameter],
        # By default, pydantic's JSON Schema would allow names of another form.
        Field(max_length=64, json_schema_extra={"additionalProperties": False}),
    ] = {}
    """Values that every workload gives, by name."""
    boundary: Boundary
    """What one workload may touch."""
    chunking: Chunking = Chunking(by="none")
    """How the source is divided into chunks. Left out: one chunk."""
    projections: Projections
    """Which columns of the target are digested and compared."""
    profile: Literal["A", "T", "O"] = "A"
    """How the intended rows are defined. A: a pinned source through filter and columns. T and O: not served yet."""
    atomicity: Literal["chunk", "workload"] = "chunk"
    """What becomes visible at once: each chunk, or all of a workload. Overwrites of several chunks need `workload`."""
    extraction: Literal["direct", "spark"] = "direct"
    """Who reads the rows. `direct`: pvdm. `spark`: Spark too; needs a source `table`, and storage other than `open`."""
    storage: Literal["open", "copied", "sealed"] = "copied"
    """Whose files are published. `copied`: the Steward's own, with the page bodies of the staged files. `open`: the
    staged files, which the producer can still write. `sealed`: the staged files, which it can write no more."""
    governance: Governance = Governance()
    """What happens on FAIL, and what a publication needs besides a PASS."""
    limits: Limits = Limits()
    """Upper limits of one workload's plan, and of each attempt."""
