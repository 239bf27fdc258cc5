"""Which process publishes a dataset: a lease that must be renewed, with a number that grows with every holder.

A process that hangs (stopped, swapped out, cut off) cannot renew, so another one takes over and gets the next number.
The number is a fence: the transactions that reserve and commit lock the row of the lease and compare it, so what a
former holder does when it wakes up is refused by the database, whatever that process believes.

The table `csdp_leases` is beside the tables of the ledger, in the same schema, and no part of the record. Times are
those of the server: clocks of the machines are not compared.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP

from csdp.errors import LedgerError
from csdp.ledger.open import connect_settings

#: Seconds to wait for the row of a lease: a former holder may have been stopped in the middle of a transaction.
_LOCK_SECONDS = 2
#: Looks, one after the other, that must find the session of the holder gone before it counts as dead: after a restart
#: of the server the holder itself has the first chance.
_LOOKS = 2
_CREATION_LOCK = 0x6373646C  # two first users at once: the second waits and finds the table

leases = sa.Table(
    "csdp_leases",
    sa.MetaData(),  # not that of the ledger: only leases on PostgreSQL need it
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("renewed", TIMESTAMP(timezone=True), nullable=False),
    sa.Column("expires", TIMESTAMP(timezone=True), nullable=False),
    sa.Column("trouble", sa.Text, nullable=False),
)

_FIRST = sa.text(
    "INSERT INTO csdp_leases VALUES (:dataset, 0, clock_timestamp(), '-infinity', '') ON CONFLICT DO NOTHING"
)
_LOOK = sa.text(
    "SELECT number, expires < clock_timestamp() AS expired, trouble,"
    " extract(epoch FROM clock_timestamp() - renewed)::float8 AS silent FROM csdp_leases WHERE dataset = :dataset"
)
_UNTIL = "renewed = clock_timestamp(), expires = clock_timestamp() + make_interval(secs => :seconds)"
_RENEW = sa.text(
    f"UPDATE csdp_leases SET {_UNTIL}, trouble = :trouble WHERE dataset = :dataset AND number = :number RETURNING 1"
)
# The row may have been locked for a while, so what was read before is asked again.
_TAKE = sa.text(
    f"UPDATE csdp_leases SET number = number + 1, {_UNTIL}, trouble = ''"
    " WHERE dataset = :dataset AND number = :number AND (:dead OR expires < clock_timestamp()) RETURNING 1"
)
_GIVE_BACK = sa.text("UPDATE csdp_leases SET expires = '-infinity' WHERE dataset = :dataset AND number = :number")


@dataclass(frozen=True)
class Fence:
    """What a ledger of a lease's holder compares in every transaction that writes to the dataset.

    Args:
        dataset: name of the dataset.
        number: of the lease.
        seconds: for which the lease holds. The server ends a transaction in which nothing happens for as long, so that
            a holder that was stopped in the middle of one does not keep others out.
    """

    dataset: str
    number: int
    seconds: float


@dataclass(frozen=True)
class Leader:
    """What a lease tells of the process that holds it."""

    silent: float  #: seconds since it was renewed
    trouble: str  #: what the holder said of itself then


class Lease(Protocol):
    """The right to publish a dataset."""

    @property
    def fence(self) -> Fence | None:
        """The fence for the ledger of the holder, None where it needs none."""

    @property
    def leader(self) -> Leader | None:
        """The process that holds the lease, as seen at the last `renew`; None where it is not known."""

    def renew(self, trouble: str = "") -> bool:
        """Take the lease if it is free, or keep it; whether this process holds it.

        Args:
            trouble: why publishing waits, for the other processes to know.
        """

    def is_current(self) -> bool:
        """Whether this process holds the lease for sure: it was renewed, and its time is not over."""

    def close(self) -> None:
        """Give the lease back."""


class OnlyProcess:
    """The lease of a ledger in a file: one process, which always publishes, so nothing is leased."""

    fence: Fence | None = None
    leader: Leader | None = None

    def renew(self, trouble: str = "") -> bool:
        """Always True."""
        return True

    def is_current(self) -> bool:
        """Always True."""
        return True

    def close(self) -> None:
        """Nothing to give back."""


class DatabaseLease:
    """A lease in the database of a PostgreSQL ledger.

    The holder also has an advisory lock of its session, named by table, dataset and number. The server takes that lock
    back when the process dies, so a dead holder is replaced at once; a hung one when its lease is over.
    """

    def __init__(self, engine: sa.Engine, dataset: str, *, seconds: float) -> None:
        self._dataset, self._seconds = dataset, seconds
        self._engine = sa.create_engine(
            engine.url,
            poolclass=sa.NullPool,
            isolation_level="READ COMMITTED",
            hide_parameters=True,
            connect_args=connect_settings(min(5.0, seconds)),
        )
        self._session: sa.Connection | None = None
        self._table = 0  # its number in the server: other schemas have leases of their own
        self._number: int | None = None
        self._until = 0.0  # by the clock of this process, a little before the server's
        self._dead_looks = (0, 0)  # number of a lease, and how often the session of its holder was gone
        self.leader: Leader | None = None

    @property
    def fence(self) -> Fence | None:
        """The fence of the lease that this process holds."""
        return None if self._number is None else Fence(self._dataset, self._number, self._seconds)

    def renew(self, trouble: str = "") -> bool:
        """Ask the server; where it is out of reach the lease holds until its time is over."""
        begun = time.monotonic()
        try:
            session = self._connect()
            with session.begin():
                session.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
                if self._keep(session, trouble) if self._number is not None else self._take(session):
                    self._until = begun + self._seconds
                else:
                    self._number = None
        except sa.exc.SQLAlchemyError:
            self._disconnect()
            self.leader = None
        if not self.is_current():
            self._number = None
        return self._number is not None

    def is_current(self) -> bool:
        """Whether the lease was renewed and its time is not over."""
        return self._number is not None and time.monotonic() < self._until

    def close(self) -> None:
        """Give the lease back, so that another process takes over at once."""
        if self._number is not None:
            with suppress(sa.exc.SQLAlchemyError), self._engine.begin() as session:
                session.execute(_GIVE_BACK, {"dataset": self._dataset, "number": self._number})
        self._number = None
        self._disconnect()

    def _connect(self) -> sa.Connection:
        if self._session is None:
            self._session = self._engine.connect()
            with self._session.begin():
                # A server default of off could bring the number of a lease back that another process held.
                self._session.exec_driver_sql("SET synchronous_commit = on")
                self._table = self._session.scalar(sa.text("SELECT 'csdp_leases'::regclass::oid::bigint"))
                if self._number is not None:
                    self._try_lock(self._session, self._number)
        return self._session

    def _disconnect(self) -> None:
        """End the session, and its advisory lock with it."""
        if self._session is not None:
            with suppress(sa.exc.SQLAlchemyError):
                self._session.invalidate()
                self._session.close()
            self._session = None

    def _keep(self, session: sa.Connection, trouble: str) -> bool:
        bound = {"dataset": self._dataset, "number": self._number, "seconds": self._seconds, "trouble": trouble[:200]}
        return session.execute(_RENEW, bound).one_or_none() is not None

    def _take(self, session: sa.Connection) -> bool:
        """Take the lease over where its time is over, or its holder is dead."""
        row = self._look(session)
        if not row.expired and not self._is_holder_dead(session, row.number):
            self.leader = Leader(row.silent, row.trouble)
            return False
        number = row.number + 1
        if not self._try_lock(session, number):
            return False  # another process is about to take it
        bound = {"dataset": self._dataset, "number": row.number, "seconds": self._seconds, "dead": not row.expired}
        if session.execute(_TAKE, bound).one_or_none() is None:
            self._unlock(session, number)
            return False
        self._number, self.leader = number, None
        return True

    def _look(self, session: sa.Connection) -> sa.Row[Any]:
        bound = {"dataset": self._dataset}
        row = session.execute(_LOOK, bound).one_or_none()
        if row is None:
            session.execute(_FIRST, bound)
            row = session.execute(_LOOK, bound).one()
        return row

    def _is_holder_dead(self, session: sa.Connection, number: int) -> bool:
        """Whether the session of the holder was gone at several looks."""
        if not self._try_lock(session, number):
            self._dead_looks = (number, 0)
            return False
        self._unlock(session, number)
        looks = self._dead_looks[1] + 1 if self._dead_looks[0] == number else 1
        self._dead_looks = (number, looks)
        return looks >= _LOOKS

    def _key(self, number: int) -> int:
        name = f"csdp lease {self._table} {number} {self._dataset}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)

    def _try_lock(self, session: sa.Connection, number: int) -> bool:
        return bool(session.scalar(sa.select(sa.func.pg_try_advisory_lock(self._key(number)))))

    def _unlock(self, session: sa.Connection, number: int) -> None:
        session.execute(sa.select(sa.func.pg_advisory_unlock(self._key(number))))


def create_table(connection: sa.Connection) -> None:
    """Create the table of leases where it is missing."""
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
    try:
        leases.create(connection, checkfirst=True)
    except sa.exc.ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) != "42501":
            raise
        raise LedgerError(
            "the role of this connection may not create the table csdp_leases beside the ledger, which says who"
            " publishes: let its owner start the service once, and grant SELECT, INSERT, UPDATE on it"
        ) from None
