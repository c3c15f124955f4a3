"""The state of every job: what flows and tasks store between two runs.

`Store.open(url)` opens it. Each method of its tables is one short transaction; `Store.transaction()` yields a store
whose tables share one, so that related facts are written together or not at all. Methods that record a fact may be
repeated with the same fact; a different fact under the same name is refused. The store makes no decisions and reads no
clock.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from proteus_spot.infra.open_close import ClosedAtEnd
from proteus_spot.infra.state.base import Database
from proteus_spot.infra.state.claims import ClaimTable
from proteus_spot.infra.state.database import open_engine
from proteus_spot.infra.state.identity import IdentityTable
from proteus_spot.infra.state.job_tables import JobTables
from proteus_spot.infra.state.journal_tables import JournalTables
from proteus_spot.infra.state.market_tables import MarketTables
from proteus_spot.infra.state.purchase_tables import PurchaseTables


class Store(ClosedAtEnd):
    """The tables of one state database.

    **Thread and process safety.** Any number of threads and processes may use one database; each process opens its own
    store. A store inside `transaction()` belongs to the thread that opened it.

    Attributes
    ----------
    owner : IdentityTable
        Which database this is, and its marks in the fences of jobs.
    jobs : JobTables
        Jobs and what was observed of them.
    journals : JournalTables
        Events and orders of the engines, with their snapshots.
    purchases : PurchaseTables
        Intents, allocations and the ledger.
    markets : MarketTables
        Facts of markets, and quotas.
    claims : ClaimTable
        Who works on what now.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.owner = IdentityTable(database)
        self.jobs = JobTables(database)
        self.journals = JournalTables(database)
        self.purchases = PurchaseTables(database)
        self.markets = MarketTables(database)
        self.claims = ClaimTable(database)

    @classmethod
    def open(cls, url: str) -> "Store":
        """Return the store at SQLAlchemy `url`, created if absent.

        Raises
        ------
        InputError
            One line: the URL is invalid, or names a directory, no database, a read-only one, or one of another version.
        """
        return cls(Database(open_engine(url)))

    def close(self) -> None:
        """Close every connection of this process."""
        self.database.close()

    @contextmanager
    def transaction(self) -> "Iterator[Store]":
        """Yield a store whose tables share one write transaction; an exception rolls it back."""
        with self.database.joined() as database:
            yield Store(database)
