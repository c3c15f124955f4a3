"""The errors that a user reads, for the flows and the command (which do not import infra)."""

from infra.errors import InputError, JobFailed, ProteusError

__all__ = ["InputError", "JobFailed", "ProteusError"]
