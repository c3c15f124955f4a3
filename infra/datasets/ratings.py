"""Ratings as a kind of data: read, hold out a part, number users and items so that partitions are balanced."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.datasets.data_files import read_content
from proteus_spot.infra.datasets.formats.ratings_text import Pairs, Ratings, is_whole, read_pairs, read_ratings
from proteus_spot.infra.datasets.formats.reading import PLAIN, Reading, check_plain
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.text_lines import shown

RATING_ENDINGS = (".csv", ".tsv", ".dat", ".data", ".txt")

_HELD_OUT_SHARE = 10
#: The split and the numbers are the same for every job, so that errors can be compared.
_SPLIT_SEED = 0
#: Of generated ratings: standard deviations of the noise and of the product of the factors, in points; their values.
_NOISE, _SIGNAL = 0.4, 0.8
_MEAN, _LEAST, _MOST = 3.5, 0.5, 5.0
_CHUNK = 1 << 18


def _built_in() -> Ratings:
    users, items, values = generated_ratings(1500, 600, 60_000)
    return Ratings(users, items, values, np.arange(1500), np.arange(600), lambda row: f"rating {row}")


#: Loaders of the built-in sets by name.
BUILT_IN: Mapping[str, Callable[[], Ratings]] = MappingProxyType({"ratings": _built_in})


@dataclass(frozen=True, slots=True)
class RatingSet:
    """The ratings of a source after split and numbering (an `infra.datasets.kinds.Prepared`).

    Attributes
    ----------
    held : bool of shape (ratings,)
        Whether a rating is held out.
    user_bounds, item_bounds : int64 of shape (partitions + 1,)
        Partition `p` has the users from `user_bounds[p]` on, below `user_bounds[p + 1]`; blocks of items likewise.
    """

    ratings: Ratings
    held: NDArray[np.bool_]
    user_bounds: NDArray[np.int64]
    item_bounds: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """Number of ratings to train on."""
        return len(self.held) - self.heldout_rows

    @property
    def heldout_rows(self) -> int:
        """Number of held-out ratings."""
        return int(self.held.sum())

    @property
    def sizes(self) -> dict[str, float]:
        """Number of users, items, ratings to train on and partitions; mean and standard deviation of these ratings."""
        values = self.ratings.values[~self.held].astype(np.float64)
        return {
            "n_users": len(self.ratings.user_names),
            "n_items": len(self.ratings.item_names),
            "n_examples": self.rows,
            "n_partitions": len(self.user_bounds) - 1,
            "rating_mean": float(values.mean()),
            "rating_sd": float(values.std()),
        }

    @property
    def about(self) -> dict[str, Any]:
        """Empty: the names are in the held-out part."""
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """How the source was read."""
        return self.ratings.notes

    def parts(self, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield `users`, `items` (int32), `values` (float32), `partition` and both bounds for each run of users.

        The seed has no effect: numbers and partitions are the same for every job with this number of partitions.
        """
        rows = np.flatnonzero(~self.held)
        users = self.ratings.users[rows]
        order = np.argsort(np.searchsorted(self.user_bounds, users, side="right").astype(np.int16), kind="stable")
        counts = np.bincount(users, minlength=int(self.user_bounds[-1]))
        cuts = np.concatenate(([0], np.cumsum(counts)))[self.user_bounds]
        for partition in range(len(self.user_bounds) - 1):
            mine = rows[order[cuts[partition] : cuts[partition + 1]]]
            yield {
                "users": self.ratings.users[mine],
                "items": self.ratings.items[mine],
                "values": self.ratings.values[mine],
                "partition": np.int64(partition).reshape(1),
                "user_bounds": self.user_bounds,
                "item_bounds": self.item_bounds,
            }

    def heldout(self) -> dict[str, NDArray[Any]]:
        """Return `users`, `items`, `values` of the held-out part, and the names of all users and items by number."""
        return {
            "users": self.ratings.users[self.held],
            "items": self.ratings.items[self.held],
            "values": self.ratings.values[self.held],
            "user_names": self.ratings.user_names,
            "item_names": self.ratings.item_names,
        }


def read(source: str, n_partitions: int, app: str | None = None, how: Reading = PLAIN) -> RatingSet:
    """Return the checked ratings of a source, a tenth of them held out.

    Each user and each item of the held-out part also occurs in the training part. Users and items are numbered by a
    seeded permutation.

    Raises
    ------
    InputError
        For a file that cannot be read or used, a repeated pair of user and item, ratings that are all equal, or more
        partitions than users or items.
    """
    check_plain(source, how, "ratings: a header names user, item and rating")
    if source in BUILT_IN:
        ratings = BUILT_IN[source]()
    else:
        ratings = read_ratings(source, read_content(source, RATING_ENDINGS, BUILT_IN))
    return divided(source, ratings, n_partitions)


def read_new(source: str, user_names: NDArray[Any], item_names: NDArray[Any]) -> Pairs:
    """Return pairs of user and item, numbered by these names, with their ratings if the source has them.

    Raises
    ------
    InputError
        For a file that cannot be read or used; with its line, for a user or an item that is not among the names.
    """
    if source in BUILT_IN:
        of = BUILT_IN[source]()
        found = Pairs(of.users, of.items, of.values, of.user_names, of.item_names, of.place)
    else:
        found = read_pairs(source, read_content(source, RATING_ENDINGS, BUILT_IN), user_names, item_names)
    users, items = _numbers_among(user_names, found.user_names), _numbers_among(item_names, found.item_names)
    users, items = users[found.users], items[found.items]
    if (unknown := (users < 0) | (items < 0)).any():
        row = int(unknown.argmax())
        what, name, known = ("user", found.user_names[found.users[row]], user_names)
        if users[row] >= 0:
            what, name, known = ("item", found.item_names[found.items[row]], item_names)
        raise InputError(
            f"{source}: {found.place(row)}: {what} {shown(str(name))} is none of the {len(known)} {what}s "
            "that the model was trained on; leave the row out"
        )
    return Pairs(users, items, found.values, user_names, item_names, found.place, found.notes)


def _numbers_among(known: NDArray[Any], names: NDArray[Any]) -> NDArray[np.int32]:
    """Return the index of each name among the known names; -1 for an unknown one."""
    there = np.ones(len(names), bool)
    if names.dtype.kind == "U" and known.dtype.kind != "U":  # whole numbers with at least one exception
        there = np.array([is_whole(name) for name in names])
        names = np.array([int(name) if fine else 0 for name, fine in zip(names, there, strict=True)])
    elif known.dtype.kind == "U":
        names = names.astype(np.str_)
    order = np.argsort(known)
    places = order[np.minimum(np.searchsorted(known, names, sorter=order), len(known) - 1)]
    return np.where(there & (known[places] == names), places, -1).astype(np.int32)


def divided(source: str, ratings: Ratings, n_partitions: int) -> RatingSet:
    """Return the ratings after checks, split and numbering; `source` is their name in errors (see `read`)."""
    _check_pairs(source, ratings)
    held = _hold_out(ratings)
    if not held.any():
        raise InputError(
            f"data {source}: {len(ratings)} ratings are too few to hold some out; "
            "want users and items with several each"
        )
    if np.ptp(ratings.values[~held]) == 0:
        raise InputError(f"data {source}: all ratings are {ratings.values[0]:g}; there is nothing to learn")
    for what, names in (("users", ratings.user_names), ("items", ratings.item_names)):
        if n_partitions > len(names):
            raise InputError(
                f"data {source}: has {len(names)} {what}, too few for {n_partitions} parts; "
                f"give --partitions {len(names)} or fewer (partitions of a job)"
            )
    rng = np.random.default_rng(_SPLIT_SEED)
    users, user_names, user_bounds = _balanced(ratings.users, ratings.user_names, held, n_partitions, rng)
    items, item_names, item_bounds = _balanced(ratings.items, ratings.item_names, held, n_partitions, rng)
    numbered = Ratings(users, items, ratings.values, user_names, item_names, ratings.place, ratings.notes)
    return RatingSet(numbered, held, user_bounds, item_bounds)


def _check_pairs(source: str, ratings: Ratings) -> None:
    pairs = ratings.users.astype(np.int64) * len(ratings.item_names) + ratings.items
    ordered = np.sort(pairs)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        # Report the first line that repeats a pair: take the rows of repeated pairs, less the first of each.
        rows = np.flatnonzero(np.isin(pairs, twice))
        again = np.delete(rows, np.unique(pairs[rows], return_index=True)[1])
        row = int(again[0])
        first = int((pairs == pairs[row]).argmax())
        user, item = str(ratings.user_names[ratings.users[row]])[:40], str(ratings.item_names[ratings.items[row]])[:40]
        raise InputError(
            f"{source}: {ratings.place(row)}: user {user} rated item {item} before, in {ratings.place(first)}; "
            "give each pair once"
        )


def _hold_out(ratings: Ratings) -> NDArray[np.bool_]:
    """Return whether each rating is held out: a tenth are, except if a user or an item would have no other rating."""
    held = np.zeros(len(ratings), bool)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(ratings))
    held[order[: -(-len(ratings) // _HELD_OUT_SHARE)]] = True
    for numbers, names in ((ratings.users, ratings.user_names), (ratings.items, ratings.item_names)):
        lonely = np.bincount(numbers[~held], minlength=len(names)) == 0
        held &= ~lonely[numbers]
    return held


def _balanced(
    numbers: NDArray[np.int32],
    names: NDArray[Any],
    held: NDArray[np.bool_],
    n_runs: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int32], NDArray[Any], NDArray[np.int64]]:
    """Return new numbers, names and bounds: a permutation, cut into runs of about equal numbers of ratings."""
    order = rng.permutation(len(names))
    place = np.empty(len(names), np.int32)
    place[order] = np.arange(len(names), dtype=np.int32)
    new = place[numbers]
    return new, names[order], even_bounds(np.bincount(new[~held], minlength=len(names)), n_runs)


def even_bounds(weights: NDArray[np.int64], n_runs: int) -> NDArray[np.int64]:
    """Return bounds, shape (n_runs + 1,), of runs of about equal weight, none of them empty.

    Each bound is where the weight before it is nearest to its share. There must be at least as many weights as runs.
    """
    total = np.concatenate(([0], np.cumsum(weights)))
    shares = total[-1] * np.arange(n_runs + 1) / n_runs
    after = np.clip(np.searchsorted(total, shares), 1, len(weights))
    bounds = np.where(shares - total[after - 1] < total[after] - shares, after - 1, after)
    steps = np.arange(n_runs + 1)
    bounds = np.maximum.accumulate(bounds - steps) + steps  # at least one in each run, from the left …
    bounds = np.minimum(bounds, len(weights) - steps[::-1])  # … and one for each run to the right
    bounds[0], bounds[-1] = 0, len(weights)
    cuts: NDArray[np.int64] = bounds.astype(np.int64)
    return cuts


def generated_ratings(
    n_users: int, n_items: int, n_ratings: int, seed: int = 0, rank: int = 6
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Return users, items and ratings in half points from 0.5 to 5, in a random order, each pair once.

    They are a factorisation of low rank, with noise, and users and items are of very different activity.

    Parameters
    ----------
    n_ratings : number of draws; repeated pairs are dropped.
    """
    rng = np.random.default_rng(seed)
    who = rng.permutation(n_users)[(n_users * rng.random(n_ratings) ** 1.8).astype(np.int64)]
    what = rng.permutation(n_items)[(n_items * rng.random(n_ratings) ** 2.2).astype(np.int64)]
    drawn = np.sort(who * n_items + what)  # np.unique would make the function three to four times slower
    pairs = rng.permutation(drawn[np.diff(drawn, prepend=-1) != 0])
    users, items = (pairs // n_items).astype(np.int32), (pairs % n_items).astype(np.int32)
    left = rng.standard_normal((n_users, rank), np.float32)
    right = rng.standard_normal((n_items, rank), np.float32) * np.float32(_SIGNAL / np.sqrt(rank))
    values = rng.standard_normal(len(pairs), np.float32) * np.float32(_NOISE) + np.float32(_MEAN)
    for low in range(0, len(pairs), _CHUNK):
        some = slice(low, low + _CHUNK)
        values[some] += np.einsum("nk,nk->n", left[users[some]], right[items[some]])
    return users, items, np.clip(np.rint(2 * values) / 2, _LEAST, _MOST)
