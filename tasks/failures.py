"""The errors that a user reads, for the flows and the command (which do not import infra)."""

from infra.errors import InputError, ProteusError

__all__ = ["InputError", "ProteusError"]
