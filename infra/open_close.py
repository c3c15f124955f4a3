"""What is opened by a with statement and closed at its end, also where the opening fails half-way."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self


class ClosedAtEnd(ABC):
    """Closed at the end of a with statement, however it ends."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is held; what holds nothing is left alone."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OpenedAtStart(ClosedAtEnd):
    """Opened by a with statement; an opening that fails, or is interrupted, closes what it had opened."""

    @abstractmethod
    def open(self) -> Any:
        """Open."""

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self
