"""How a table of examples is to be read: what the user says of it, and what a trained model knows of its columns."""

from dataclasses import dataclass
from typing import Literal

from proteus_spot.infra.errors import InputError

Empty = Literal["refuse", "drop", "mean"]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a table of examples is to be read.

    Attributes
    ----------
    label : name of the column of the label; empty: the column is found by its name or place.
    empty : what becomes of cells without a value: an error, their rows are left out, or the column's mean over the
        training rows stands for them.
    inputs : names of the columns that a model was trained on, in its order; empty where they had none.
    known_label : name of that model's label column, which new data may have; None where it had none.
    text_labels : whether that model's labels are texts.
    """

    label: str = ""
    empty: Empty = "refuse"
    inputs: tuple[str, ...] = ()
    known_label: str | None = None
    text_labels: bool = False


#: As it comes.
PLAIN = Reading()


def check_plain(source: str, how: Reading, what: str) -> None:
    """Refuse what a user says of a table of examples where the source holds something else."""
    option = f"--label {how.label}" if how.label else f"--empty {how.empty}" if how.empty != "refuse" else ""
    if option:
        raise InputError(f"{option}: {source} holds {what}; leave it out")
