"""The tables, the triggers that make them append-only, and records read from rows; `docs/ledger-format.md` explains
each column.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from csdp.errors import LedgerConflictError
from csdp.ledger.records import JSONObject, RecordedDataset, Terms, decode

PRODUCT = "csdp-ledger"
VERSION = 1
APPLICATION_ID = 0x63736470  # "csdp", in the header of the SQLite file: a foreign file is known before it is opened

metadata = sa.MetaData()

meta = sa.Table(
    "csdp_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

datasets = sa.Table(
    "csdp_datasets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("created", sa.Text, nullable=False),
    # Where the log stands: the only columns of the ledger that are ever updated, and only forward.
    sa.Column("plan_number", sa.Integer, nullable=False),
    sa.Column("head_seq", sa.BigInteger, nullable=False),
    sa.Column("head_hash", sa.Text, nullable=False),
    sa.Column("state_seq", sa.BigInteger),
)

plans = sa.Table(
    "csdp_plans",
    metadata,
    sa.Column("dataset", sa.Text, sa.ForeignKey(datasets.c.name), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("chain", sa.Text, nullable=False),
    sa.Column("limits", sa.Text, nullable=False),
    sa.Column("guarantee", sa.Text, nullable=False),
    sa.Column("fit_cost", sa.Text),
    sa.Column("from_tick", sa.BigInteger),
    sa.Column("rule", sa.Text),
)

#: The terms that a dataset is published under now.
LIVE = sa.and_(plans.c.dataset == datasets.c.name, plans.c.number == datasets.c.plan_number)

entries = sa.Table(
    "csdp_entries",
    metadata,
    sa.Column("dataset", sa.Text, sa.ForeignKey(datasets.c.name), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("tick", sa.BigInteger),
    sa.Column("query", sa.Text),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.CheckConstraint("kind IN ('open', 'change', 'reserve', 'commit', 'refuse')", name="csdp_entries_kind"),
)

# Literals, not parameters: a query must repeat these words for the partial indexes to serve it.
ONCE = sa.text("kind IN ('reserve', 'commit')")
REFUSED = sa.text("kind = 'refuse'")
# Whatever the code does, the database takes no second charge and no second output of one tick and query.
sa.Index(
    "csdp_entries_once",
    entries.c.dataset,
    entries.c.tick,
    entries.c.query,
    entries.c.kind,
    unique=True,
    sqlite_where=ONCE,
    postgresql_where=ONCE,
)
sa.Index(
    "csdp_entries_refused",
    entries.c.dataset,
    entries.c.tick,
    entries.c.query,
    sqlite_where=REFUSED,
    postgresql_where=REFUSED,
)

_FORWARD = (
    "NEW.name <> OLD.name OR NEW.created <> OLD.created OR NEW.head_seq <= OLD.head_seq"
    " OR NEW.plan_number < OLD.plan_number OR COALESCE(NEW.state_seq, 0) < COALESCE(OLD.state_seq, 0)"
)
_FROZEN = ("csdp_meta", "csdp_plans", "csdp_entries")
_MESSAGE = "the csdp ledger is append-only"


def triggers(dialect: str) -> list[str]:
    """The statements that forbid UPDATE, DELETE and TRUNCATE, in the words of one database."""
    sqlite = dialect == "sqlite"
    statements = []
    then = f"BEGIN SELECT RAISE(ABORT, '{_MESSAGE}'); END"
    if not sqlite:
        statements.append(
            "CREATE FUNCTION csdp_append_only() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION '{_MESSAGE}' USING ERRCODE = 'restrict_violation'; END $$"
        )
        then = "EXECUTE FUNCTION csdp_append_only()"
    for table in (*_FROZEN, "csdp_datasets"):
        each = "" if sqlite else " FOR EACH ROW"
        forward = _FORWARD if sqlite else f"({_FORWARD})"
        when = f" WHEN {forward}" if table == "csdp_datasets" else ""
        statements.append(f"CREATE TRIGGER {table}_update BEFORE UPDATE ON {table}{each}{when} {then}")
        statements.append(f"CREATE TRIGGER {table}_delete BEFORE DELETE ON {table}{each} {then}")
        if not sqlite:
            statements.append(f"CREATE TRIGGER {table}_truncate BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {then}")
    if sqlite:  # INSERT OR REPLACE removes the old row without asking the delete trigger
        same = "SELECT 1 FROM csdp_entries WHERE dataset = NEW.dataset AND seq = NEW.seq"
        statements.append(
            f"CREATE TRIGGER csdp_entries_replace BEFORE INSERT ON csdp_entries WHEN EXISTS ({same}) {then}"
        )
    return statements


def trigger_names(dialect: str) -> set[str]:
    """The names of those triggers, for `verify` to look for."""
    return {words[2] for words in map(str.split, triggers(dialect)) if words[1] == "TRIGGER"}


def create(connection: sa.Connection) -> None:
    """Create an empty ledger inside the caller's transaction."""
    metadata.create_all(connection, checkfirst=False)
    for statement in triggers(connection.dialect.name):
        connection.exec_driver_sql(statement)
    rows = [{"key": "product", "value": PRODUCT}, {"key": "version", "value": str(VERSION)}]
    connection.execute(sa.insert(meta), rows)


# ---- reading rows


def terms_record(row: Any) -> JSONObject:
    """The terms in a row of `csdp_plans`, exactly as recorded; see `Terms.from_record`."""
    return {
        "number": row.number,
        "plan_digest": row.digest,
        "plan_json": row.plan,
        "chain_digest": row.chain,
        "limits": decode(row.limits),
        "guarantee": decode(row.guarantee),
        "fit_cost": None if row.fit_cost is None else decode(row.fit_cost),
        "from_tick": row.from_tick,
        "rule": row.rule,
    }


def all_datasets(connection: sa.Connection, name: str | None = None) -> list[RecordedDataset]:
    """Every dataset with its live terms, or the one of that name."""
    query = sa.select(datasets, plans).join(plans, LIVE).order_by(datasets.c.name)
    if name is not None:
        query = query.where(datasets.c.name == name)
    rows = connection.execute(query).all()
    return [
        RecordedDataset(
            name=row.name,
            created=row.created,
            terms=Terms.from_record(terms_record(row)),
            head_seq=row.head_seq,
            head_hash=row.head_hash,
        )
        for row in rows
    ]


def one_dataset(connection: sa.Connection, name: str) -> RecordedDataset:
    """The dataset of that name, or an error that lists the recorded ones."""
    for dataset in all_datasets(connection, name):
        return dataset
    raise unknown_dataset(connection, name)


def unknown_dataset(connection: sa.Connection, name: str) -> LedgerConflictError:
    """The error for a name that is not recorded."""
    known = connection.scalars(sa.select(datasets.c.name).order_by(datasets.c.name).limit(10)).all()
    return LedgerConflictError(f"the ledger has no dataset {name!r}; recorded: {', '.join(known) or 'none'}")


def all_terms(connection: sa.Connection, name: str) -> list[JSONObject]:
    """Every set of terms the dataset ever had, as recorded, oldest first."""
    rows = connection.execute(sa.select(plans).where(plans.c.dataset == name).order_by(plans.c.number))
    return [terms_record(row) for row in rows]
