"""The table of claims: who works on what now."""

from sqlalchemy import delete, select

from proteus_spot.infra.state.base import Database
from proteus_spot.infra.state.database import insert_or, now_s
from proteus_spot.infra.state.schema import claims


class ClaimTable:
    """Claims by name; each ends by itself."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, name: str, holder: str, ttl_s: float) -> bool:
        """Claim `name` for `holder` for `ttl_s` real seconds; return False if another holder has it.

        An expired claim is taken over; the holder's own is prolonged (or cut) to the new end. Of several concurrent
        calls exactly one succeeds. The database's clock decides, so that machines whose clocks differ agree.
        """
        with self._database.write() as connection:
            expires_at_s = now_s(connection) + ttl_s
            statement = insert_or(connection, claims).values(name=name, holder=holder, expires_at_s=expires_at_s)
            statement = statement.on_conflict_do_update(
                index_elements=["name"],
                set_={"holder": holder, "expires_at_s": expires_at_s},
                where=(claims.c.holder == holder) | (claims.c.expires_at_s <= now_s(connection)),
            )
            return connection.execute(statement.returning(claims.c.name)).one_or_none() is not None

    def is_claimed(self, name: str) -> bool:
        """Return whether `name` is held now."""
        with self._database.read() as connection:
            held = (claims.c.name == name) & (claims.c.expires_at_s > now_s(connection))
            return connection.scalar(select(claims.c.name).where(held)) is not None

    def release_all(self) -> None:
        """Release every claim; call it only when all holders are known to have ended."""
        with self._database.write() as connection:
            connection.execute(delete(claims))

    def release(self, name: str, holder: str) -> bool:
        """Release `name` if `holder` has it; return whether it had."""
        with self._database.write() as connection:
            deleted = connection.execute(delete(claims).where(claims.c.name == name, claims.c.holder == holder))
            return deleted.rowcount == 1
