"""The SQL that creates a ledger in both databases: tables, triggers, and read-only views.

The triggers are generated from the tables and the state machines. The views have the layout of PyIceberg's
SqlCatalog, for operators and auditors who read the ledger directly. That layout joins the levels of a namespace by
dots, so the namespaces `("a", "b")` and `("a.b",)` would have one name. Namespaces with a dot in a level are therefore
left out of the two views; `iceberg_left_out` lists them with their numbers of tables and views. A table's name has a
column of its own, so a dot in it does no harm. Tables of upstream catalogs are left out, because the ledger does not
have their pointers.

`table.info` (`pvdm.ledger.schema`) has the facts for the triggers: `changes`, the columns that may change; `deletable`;
and `unlogged`, the columns that events omit, or None for a table without events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from sqlalchemy import LargeBinary, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from pvdm.ledger.schema import REFUSED_PREFIX, REFUSED_SQLSTATE, catalog, metadata, record, work
from pvdm.model.states import MACHINES, AttemptState

DialectName: TypeAlias = Literal["sqlite", "postgresql"]
DIALECTS: Final[tuple[DialectName, ...]] = ("sqlite", "postgresql")

# Importing these modules defines their tables.
_TABLE_MODULES: Final = (catalog, record, work)
_DIALECT_CLASSES: Final = {"sqlite": sqlite.dialect, "postgresql": postgresql.dialect}

# Finds another workload's claim that overlaps a new one. Valid SQL in both databases.
_OVERLAP: Final = """SELECT 1 FROM claims c
    WHERE c.target = NEW.target AND c.workload_id <> NEW.workload_id
      AND (c.claim_column IS NULL OR NEW.claim_column IS NULL
           OR c.claim_column <> NEW.claim_column OR c.column_kind <> NEW.column_kind
           OR ((c.upper_bound IS NULL OR NEW.lower_bound < c.upper_bound)
               AND (NEW.upper_bound IS NULL OR c.lower_bound < NEW.upper_bound)))"""
_COMMITTED_PUBLICATION: Final = """SELECT 1 FROM published p JOIN nonces n ON n.nonce = p.nonce
    WHERE p.workload_id = NEW.workload_id AND p.chunk_id = NEW.chunk_id AND p.attempt_id = NEW.attempt_id
      AND n.state = 'COMMITTED'"""
_NEXT_INDEX: Final = "SELECT coalesce(max(entry_index) + 1, 0) FROM log_entries"
# Checks that compare a row with other rows. Each is: name, event, condition of the refusal, message.
_CHECKS: Final = (
    ("claims_overlap", "BEFORE INSERT ON claims", f"EXISTS ({_OVERLAP})", "claims overlap"),
    (
        "attempts_published",
        "BEFORE UPDATE ON attempts",
        f"NEW.state = '{AttemptState.COMMITTED}' AND NOT EXISTS ({_COMMITTED_PUBLICATION})",
        "a committed attempt is published",
    ),
    (
        "log_entries_next",
        "BEFORE INSERT ON log_entries",
        f"NEW.entry_index <> ({_NEXT_INDEX})",
        "log entries have no gap",
    ),
)
# The lock makes the check correct under READ COMMITTED: after the wait the other claim is visible.
_CLAIMS_LOCK: Final = "    PERFORM pg_advisory_xact_lock(hashtextextended('pvdm claims ' || NEW.target, 0));\n"
# The SQL that shows a binary column in JSON as hexadecimal digits.
_HEX: Final = {"sqlite": "CASE WHEN {0} IS NOT NULL THEN lower(hex({0})) END", "postgresql": "encode({0}, 'hex')"}
LAYOUT_CATALOG: Final = "pvdm"
"""The layout's `catalog_name`: one ledger holds one catalog."""
LAYOUT_VIEWS: Final = ("iceberg_tables", "iceberg_namespace_properties", "iceberg_left_out")
# For each database, SQL about a namespace `n`: its levels joined by dots, whether a level has a dot, and its properties
# as rows.
_JOINED: Final = {
    "sqlite": "(SELECT group_concat(value, '.') FROM (SELECT value FROM json_each(n.levels) ORDER BY key))",
    "postgresql": "(SELECT string_agg(level, '.' ORDER BY at)"
    " FROM json_array_elements_text(n.levels::json) WITH ORDINALITY AS each_level (level, at))",
}
_DOTTED: Final = {
    "sqlite": "EXISTS (SELECT 1 FROM json_each(n.levels) WHERE instr(value, '.') > 0)",
    "postgresql": "EXISTS (SELECT 1 FROM json_array_elements_text(n.levels::json) AS level"
    " WHERE strpos(level, '.') > 0)",
}
_PROPERTY_ROWS: Final = {
    "sqlite": "json_each(n.properties)",
    "postgresql": "json_each_text(n.properties::json) AS property (key, value)",
}
_NO_PROPERTIES: Final = "'{}'"


def statements(dialect: DialectName) -> list[str]:
    """Every statement that turns an empty database into a ledger, in order."""
    compiler = _DIALECT_CLASSES[dialect]()
    created = []
    for table in metadata.sorted_tables:
        created.append(str(CreateTable(table).compile(dialect=compiler)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        created += [str(CreateIndex(index).compile(dialect=compiler)) for index in indexes]
    created += _sqlite_triggers() if dialect == "sqlite" else _postgresql_triggers()
    created += _layout_views(dialect)
    return ["\n".join(line.rstrip() for line in text.strip().splitlines()) for text in created]


def row_key(table: Table, row: str) -> str:
    """The SQL text of a row's key in events: its key columns joined by a slash."""
    return " || '/' || ".join(f"CAST({row}.{column.name} AS TEXT)" for column in table.primary_key.columns)


def _json_arguments(table: Table, row: str, dialect: DialectName) -> str:
    """The logged columns of a row as arguments of the database's function that makes JSON."""
    logged = [column for column in table.columns if column.name not in table.info["unlogged"]]
    formats = [_HEX[dialect] if isinstance(column.type, LargeBinary) else "{0}" for column in logged]
    pairs = zip(logged, formats, strict=True)
    return ", ".join(f"'{column.name}', " + form.format(f"{row}.{column.name}") for column, form in pairs)


def _refusals(table: Table, distinct: str) -> Iterator[tuple[str, str, str | None, str]]:
    """(name, event, condition, message) of every trigger that refuses a change by the changed row alone.

    `distinct` is the database's operator for "differs", which treats null as a value.
    """
    if not table.info["deletable"]:
        yield "no_delete", "DELETE", None, f"rows of {table.name} are never deleted"
    if not table.info["changes"]:
        yield "no_update", "UPDATE", None, f"rows of {table.name} never change"
        return
    fixed = [column.name for column in table.columns if column.name not in table.info["changes"]]
    fixed_changed = "\n    OR ".join(f"NEW.{name} {distinct} OLD.{name}" for name in fixed)
    yield "fixed", "UPDATE", fixed_changed, f"only {', '.join(table.info['changes'])} of {table.name} change"
    machine = next((machine for machine in MACHINES if machine.ledger_table == table.name), None)
    if machine is not None:
        yield "first_state", "INSERT", f"NEW.state <> '{machine.initial}'", f"{table.name} begin in {machine.initial}"
        steps = (f"(OLD.state = '{step.old}' AND NEW.state = '{step.new}')" for step in machine.transitions)
        allowed = "\n    OR ".join(steps)
        yield "step", "UPDATE", f"NOT ({allowed})", f"no such step of the {machine.name}"
    if table.name == "tokens":
        for name in ("revoked", "replaced"):
            later = f"NEW.{name}_micros IS NULL OR NEW.{name}_micros > OLD.{name}_micros"
            condition = f"OLD.{name}_micros IS NOT NULL AND ({later})"
            yield f"{name}_once", "UPDATE", condition, f"a {name} token stays {name}"
    if table.name == "tables":
        since = f"OLD.protected_micros IS NOT NULL AND NEW.protected_micros {distinct} OLD.protected_micros"
        yield "protected_once", "UPDATE", since, "when a table was first protected stays known"


def _sqlite_triggers() -> list[str]:
    triggers = []
    for table in metadata.sorted_tables:
        for name, event, condition, message in _refusals(table, "IS NOT"):
            when = f"BEFORE {event} ON {table.name}"
            triggers.append(_sqlite_trigger(f"{table.name}_{name}", when, condition, message))
        if table.info["unlogged"] is not None:
            events = ("INSERT", "UPDATE") if table.info["changes"] else ("INSERT",)
            triggers += [_sqlite_event(table, event) for event in events]
    return triggers + [_sqlite_trigger(*check) for check in _CHECKS]


def _sqlite_trigger(name: str, when: str, condition: str | None, message: str) -> str:
    clause = "" if condition is None else f"\nWHEN {condition}"
    return f"CREATE TRIGGER {name} {when}{clause}\nBEGIN\n    SELECT RAISE(ABORT, '{REFUSED_PREFIX}{message}');\nEND"


def _sqlite_event(table: Table, event: str) -> str:
    old = f"json_object({_json_arguments(table, 'OLD', 'sqlite')})" if event == "UPDATE" else "NULL"
    return (
        f"CREATE TRIGGER {table.name}_event_{event.lower()} AFTER {event} ON {table.name}\nBEGIN\n"  # noqa: S608 - no value in it
        f"    INSERT INTO events (at_micros, kind, subject, row_key, old, new)\n"
        f"    VALUES (NEW.at_micros, '{event.lower()}', '{table.name}', {row_key(table, 'NEW')},\n"
        f"        {old},\n        json_object({_json_arguments(table, 'NEW', 'sqlite')}));\nEND"
    )


def _postgresql_triggers() -> list[str]:
    refuse = f"    RAISE EXCEPTION '{REFUSED_PREFIX}%', TG_ARGV[0] USING ERRCODE = '{REFUSED_SQLSTATE}';"
    triggers = [_function("pvdm_refuse", refuse)]
    for table in metadata.sorted_tables:
        for name, event, condition, message in _refusals(table, "IS DISTINCT FROM"):
            clause = "" if condition is None else f"\nWHEN ({condition})"
            triggers.append(
                f"CREATE TRIGGER {table.name}_{name} BEFORE {event} ON {table.name}\nFOR EACH ROW{clause}\n"
                f"EXECUTE FUNCTION pvdm_refuse('{message}')"
            )
        triggers.append(
            f"CREATE TRIGGER {table.name}_no_truncate BEFORE TRUNCATE ON {table.name}\nFOR EACH STATEMENT\n"
            f"EXECUTE FUNCTION pvdm_refuse('rows of {table.name} are never deleted')"
        )
        if table.info["unlogged"] is not None:
            triggers += _postgresql_event(table)
    for name, when, condition, message in _CHECKS:
        body = (
            f"{_CLAIMS_LOCK if name == 'claims_overlap' else ''}    IF {condition} THEN\n"
            f"        RAISE EXCEPTION '{REFUSED_PREFIX}{message}' USING ERRCODE = '{REFUSED_SQLSTATE}';\n"
            "    END IF;\n    RETURN NEW;"
        )
        triggers += [
            _function(f"pvdm_{name}", body),
            f"CREATE TRIGGER {name} {when}\nFOR EACH ROW\nEXECUTE FUNCTION pvdm_{name}()",
        ]
    return triggers


def _function(name: str, body: str) -> str:
    return f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$\nBEGIN\n{body}\nEND $$"


def _postgresql_event(table: Table) -> list[str]:
    old, new = (f"json_build_object({_json_arguments(table, row, 'postgresql')})::text" for row in ("OLD", "NEW"))
    body = (
        f"    INSERT INTO events (at_micros, kind, subject, row_key, old, new)\n"  # noqa: S608 - no value in it
        f"    VALUES (NEW.at_micros, lower(TG_OP), '{table.name}', {row_key(table, 'NEW')},\n"
        f"        CASE WHEN TG_OP = 'UPDATE' THEN {old} END,\n        {new});\n    RETURN NULL;"
    )
    events = "INSERT OR UPDATE" if table.info["changes"] else "INSERT"
    return [
        _function(f"pvdm_{table.name}_event", body),
        f"CREATE TRIGGER {table.name}_event AFTER {events} ON {table.name}\nFOR EACH ROW\n"
        f"EXECUTE FUNCTION pvdm_{table.name}_event()",
    ]


def _layout_views(dialect: str) -> list[str]:
    """The statements that create the views. A union or DISTINCT makes them read-only in both databases."""
    joined, dotted, properties = _JOINED[dialect], _DOTTED[dialect], _PROPERTY_ROWS[dialect]
    return [
        f"""CREATE VIEW iceberg_tables AS
SELECT '{LAYOUT_CATALOG}' AS catalog_name,
    {joined} AS table_namespace,
    t.name AS table_name,
    t.metadata_location AS metadata_location,
    t.previous_location AS previous_metadata_location,
    'TABLE' AS iceberg_type
FROM tables t JOIN namespaces n ON n.namespace_id = t.namespace_id
WHERE t.dropped_micros IS NULL AND t.upstream IS NULL AND NOT {dotted}
UNION ALL
SELECT '{LAYOUT_CATALOG}', {joined}, v.name, v.metadata_location, NULL, 'VIEW'
FROM views v JOIN namespaces n ON n.namespace_id = v.namespace_id
WHERE v.dropped_micros IS NULL AND NOT {dotted}""",  # noqa: S608 - no value in it
        f"""CREATE VIEW iceberg_namespace_properties AS
SELECT '{LAYOUT_CATALOG}' AS catalog_name,
    {joined} AS namespace,
    key AS property_key,
    value AS property_value
FROM namespaces n, {properties}
WHERE n.dropped_micros IS NULL AND NOT {dotted}
UNION ALL
SELECT '{LAYOUT_CATALOG}', {joined}, 'exists', 'true'
FROM namespaces n
WHERE n.dropped_micros IS NULL AND n.properties = {_NO_PROPERTIES} AND NOT {dotted}""",  # noqa: S608 - no value in it
        f"""CREATE VIEW iceberg_left_out AS
SELECT DISTINCT '{LAYOUT_CATALOG}' AS catalog_name,
    n.levels AS levels,
    (SELECT count(*) FROM tables t WHERE t.namespace_id = n.namespace_id AND t.dropped_micros IS NULL
        AND t.upstream IS NULL) AS table_count,
    (SELECT count(*) FROM views v WHERE v.namespace_id = n.namespace_id AND v.dropped_micros IS NULL) AS view_count
FROM namespaces n
WHERE n.dropped_micros IS NULL AND {dotted}""",  # noqa: S608 - no value in it
    ]
