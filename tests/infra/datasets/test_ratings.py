import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.infra.datasets.formats.ratings_text import read_pairs, read_ratings
from proteus_spot.infra.datasets.prepare import check_data, prepare
from proteus_spot.infra.datasets.ratings import RatingSet, even_bounds, generated_ratings, read, read_new
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import HELD_OUT, part_name

ROWS = [(7, 30, 4.0), (7, 10, 2.5), (2, 30, 1.0), (40, 20, 5.0)]


def text(separator: str = ",", header: str = "", rows: list[tuple[object, ...]] = ROWS) -> bytes:  # type: ignore[assignment]
    lines = [separator.join(map(str, row)) for row in rows]
    return "\n".join([header, *lines] if header else lines).encode()


def pairs(source: bytes) -> list[tuple[object, object, float]]:
    found = read_ratings("a.csv", source)
    users, items = found.user_names[found.users].tolist(), found.item_names[found.items].tolist()
    return list(zip(users, items, found.values.tolist(), strict=True))


def write(folder: Path, content: bytes, name: str = "a.csv") -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("separator", [",", "\t", "::"])
@pytest.mark.parametrize("header", [False, True])
def test_ratings_are_read_whatever_stands_between_them(separator: str, header: bool) -> None:
    names = separator.join(["userId", "movieId", "rating"])
    assert pairs(text(separator, names if header else "")) == ROWS


def test_further_columns_blank_lines_and_a_mark_are_passed_over() -> None:
    assert pairs(b"\xef\xbb\xbf\n" + text(rows=[(*row, "x y", 978300760) for row in ROWS]) + b"\n\n") == ROWS


def test_names_are_numbered_in_their_order_also_where_they_are_far_apart() -> None:
    found = read_ratings("a.csv", text(rows=[(10**15, -5, 1.0), (3, 10**17, 2.0), (10**15, 10**17, 3.0)]))
    assert found.user_names.tolist() == [3, 10**15]
    assert found.users.tolist() == [1, 0, 1]
    assert found.item_names.tolist() == [-5, 10**17]


def test_names_may_be_texts_and_begin_like_numbers() -> None:
    rows = [(1, "The Kid: part 1", 3.0), ("anna", "M", 4.0), ("ünal", "M", 1.0)]
    assert pairs(text("::", rows=rows)) == [("1", *rows[0][1:]), *rows[1:]]


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 10**12), st.integers(-8, 8)), min_size=1, max_size=30))
def test_what_is_written_is_read(rows: list[tuple[int, int, int]]) -> None:
    assert pairs(text("\t", rows=[(u, i, r / 2) for u, i, r in rows])) == [(u, i, r / 2) for u, i, r in rows]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"user,item,rating\n", "has a header and no ratings"),
        (b"1,2\n3,4\n", "line 1: has 2 of the columns"),
        (b"1,2,3\n\n4,5,n/a\n", "line 3: the rating is 'n/a'; write a number"),
        (b"1,2,3\n4,5,\n", "line 2: the rating is empty; write a number"),
        (b"1::2::3\n4::5::bad\n", "line 2: the rating is 'bad'; write a number"),
        (b"1,2,3\n4,5,nan\n", "line 2: the rating is nan; write a finite number"),
        (b"1,2,3\n4,5,1e99\n", "line 2: the rating is inf; write a finite number"),
        (b"u,i,r\n1,2,3\n4,5,3,9\n", "line 3: has 4 columns and the first row 3; fix the row"),
        (b"a,b,3\n,b,4\n", "line 2: the user is empty; name each"),
        (b"a,b,3\na,,4\n", "line 2: the item is empty; name each"),
        (b"a,b,3\nc,\xff\xfe,4\n", "not UTF-8 text; fix it"),
        (b"1,2,3\n1,5,4\n7,2,1\n1,5,2\n1,2,3\n", "line 4: user 1 rated item 5 before, in line 2; give each pair once"),
        (b"1,2,3\n4,5,2\n", "2 ratings are too few to hold some out"),
        (b"1,2,3\0\n", "is a binary file"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(tmp_path: Path, content: bytes, told: str) -> None:
    source = write(tmp_path, content)
    with pytest.raises(InputError) as caught:
        check_data(source, 1, "mf")
    assert told in str(caught.value)
    assert source in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mark", [",", "::", "\t", ";", " "])
def test_digits_with_leading_zeros_are_names(tmp_path: Path, mark: str) -> None:
    def names(*pairs: str) -> tuple[list[Any], list[Any]]:
        lines = [pair.replace(",", mark) + mark + "3" for pair in pairs]
        found = read_ratings("a", "\n".join(lines).encode())
        return found.user_names.tolist(), found.item_names.tolist()

    assert names("1,5", "01,5", "1,05") == (["01", "1"], ["05", "5"])
    assert names("01,5", "1,10") == (["01", "1"], [5, 10])
    assert names("10,5", "100,0") == ([10, 100], [0, 5])
    assert names("7,5", "+7,5") == (["+7", "7"], [5])
    assert names("7,5", "7.0,5") == (["7", "7.0"], [5])
    assert names("7,1234567890123456789", "8,1") == ([7, 8], ["1", "1234567890123456789"])


def test_the_first_line_of_excel_is_passed_over_and_other_forms_are_named(tmp_path: Path) -> None:
    assert pairs(b"sep=;\r\nuser;item;rating\r\n7;5;3\r\n") == [(7, 5, 3.0)]
    with pytest.raises(InputError, match="line 3: the rating is 'x'"):
        pairs(b"sep=,\n1,2,3\n4,5,x\n")
    with pytest.raises(InputError, match="is an ARFF file of Weka"):
        pairs(b"@relation ratings\n")


def test_new_names_are_those_of_the_model_or_refused(tmp_path: Path) -> None:
    source = write(tmp_path, b"7,1\n8,1\n")
    assert read_new(source, np.array(["007", "7", "8"]), np.array(["1"])).users.tolist() == [1, 2]
    with pytest.raises(InputError, match="line 1: user '007' is none of the 2 users"):
        read_new(write(tmp_path, b"007,1\n8,1\n"), np.array([7, 8]), np.array([1]))


def test_sets_that_cannot_be_divided_or_learnt_are_refused(tmp_path: Path) -> None:
    same = write(tmp_path, text(rows=[(u, i, 3) for u in range(8) for i in range(8)]))
    with pytest.raises(InputError, match="all ratings are 3"):
        read(same, 2)
    few = write(tmp_path, text(rows=[(u, i, i) for u in range(20) for i in range(3)]), "few.csv")
    with pytest.raises(InputError, match="has 3 items, too few for 4 parts"):
        read(few, 4)
    with pytest.raises(InputError, match="known are ratings"):
        read("movies", 2)
    with pytest.raises(InputError, match="known are digits"):
        check_data("ratings", 2, "mlr")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_files_may_be_packed(tmp_path: Path, pack: object) -> None:
    content = text("::", rows=[(u, i, u * i % 7) for u in range(9) for i in range(9)])
    plain = read(write(tmp_path, content, "a.dat"), 2)
    packed = read(write(tmp_path, pack(content), "a.dat.gz"), 2)  # type: ignore[operator]
    assert (plain.held == packed.held).all()
    assert (plain.ratings.values == packed.ratings.values).all()


# -- how a set is divided ---------------------------------------------------------------------------------------------


def joined(data: RatingSet) -> set[tuple[object, object, float]]:
    names = data.heldout()
    return {
        (names["user_names"][u], names["item_names"][i], float(v))
        for arrays in [*data.parts(0), names]
        for u, i, v in zip(arrays["users"], arrays["items"], arrays["values"], strict=True)
    }


def test_every_rating_is_in_one_part_and_keeps_its_names(tmp_path: Path) -> None:
    users, items, values = generated_ratings(60, 25, 700)
    rows = [(f"u{u}", 5 * i, float(v)) for u, i, v in zip(users, items, values, strict=True)]
    data = read(write(tmp_path, text(rows=rows)), 5)
    assert joined(data) == set(rows)
    assert data.rows + data.heldout_rows == len(rows)


def test_the_held_out_part_is_a_tenth_and_nobody_in_it_is_unknown() -> None:
    data = read("ratings", 4)
    ratings, held = data.ratings, data.held
    assert data.heldout_rows == pytest.approx(0.1 * len(held), rel=0.02)
    for numbers in (ratings.users, ratings.items):
        assert set(numbers[held]) <= set(numbers[~held])


def test_parts_are_runs_of_users_and_parts_and_blocks_weigh_the_same() -> None:
    data = read("ratings", 8)
    weights = []
    for number, part in enumerate(data.parts(0)):
        assert part["partition"].tolist() == [number]
        low, high = part["user_bounds"][number : number + 2]
        assert ((low <= part["users"]) & (part["users"] < high)).all()
        weights.append(len(part["values"]))
    blocks = np.diff(np.searchsorted(np.sort(data.ratings.items[~data.held]), data.item_bounds))
    assert sum(weights) == blocks.sum() == data.rows
    assert max(weights) < 1.05 * data.rows / 8
    assert blocks.max() < 1.1 * data.rows / 8


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.data())
def test_bounds_are_even_and_leave_no_run_empty(weights: list[int], data: st.DataObject) -> None:
    runs = data.draw(st.integers(1, len(weights)))
    bounds = even_bounds(np.array(weights), runs)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, len(weights), runs + 1)
    assert (np.diff(bounds) >= 1).all()
    if len(set(weights)) == 1 and len(weights) % runs == 0 and weights[0]:
        assert set(np.diff(bounds)) == {len(weights) // runs}


def test_a_job_gets_its_parts_and_is_told_the_sizes(tmp_path: Path) -> None:
    blobs = Blobs((tmp_path / "blobs").as_uri())
    summary = prepare(blobs, "job", "ratings", 3, seed=5, app="mf")
    data = read("ratings", 3)
    assert summary.sizes == data.sizes
    assert {"n_users", "n_items", "n_examples", "n_partitions", "rating_mean", "rating_sd"} == set(summary.sizes)
    values = np.concatenate([blobs.read_npz(f"jobs/job/data/{part_name(p)}")["values"] for p in range(3)])
    assert summary.sizes["rating_mean"] == pytest.approx(values.mean(), rel=1e-5)
    assert summary.sizes["rating_sd"] == pytest.approx(values.std(), rel=1e-5)
    assert (blobs.read_npz(f"jobs/job/data/{HELD_OUT}")["users"] == data.heldout()["users"]).all()
    assert prepare(blobs, "job", "ratings", 3, seed=5, app="mf") == summary
    with pytest.raises(InputError, match="use another job id"):
        prepare(blobs, "job", "ratings", 3, seed=5, app="mlr")


# -- pairs to predict from --------------------------------------------------------------------------------------------

WHOLE, TEXTS = np.array([40, 7, 2]), np.array(["The Kid", "M", "12"])


def new(
    folder: Path, content: bytes, users: np.ndarray = WHOLE, items: np.ndarray = TEXTS
) -> tuple[list[int], list[int]]:
    found = read_new(write(folder, content), users, items)
    assert found.users.dtype == found.items.dtype == np.int32
    return found.users.tolist(), found.items.tolist()


def test_pairs_get_the_numbers_of_known_names(tmp_path: Path) -> None:
    assert new(tmp_path, b"7,M\n\n40,12\n7,The Kid\n") == ([1, 0, 1], [1, 2, 0])
    assert new(tmp_path, b"\xef\xbb\xbf7::M::3::x\n2::12::4::x\n") == ([1, 2], [1, 2])
    assert new(tmp_path, b"12\t2\nM\t7\n", TEXTS, WHOLE) == ([2, 1], [2, 1])
    assert new(tmp_path, b"007,7\n7,2\n", np.array(["7", "007", "M"])[::-1], WHOLE) == ([1, 2], [1, 2])
    assert read_new(write(tmp_path, b"7,M,3\n2,12,4.5\n"), WHOLE, TEXTS).values == pytest.approx([3, 4.5])
    assert read_new(write(tmp_path, b"7,M\n2,12\n"), WHOLE, TEXTS).values is None


@pytest.mark.parametrize(
    ("content", "users", "items", "header"),
    [
        (b"user,item\n7,M\n", WHOLE, TEXTS, True),
        (b"who,what\n7,M\n", WHOLE, TEXTS, True),  # a user would be a number
        (b"userId,film\nM,M\n", TEXTS, TEXTS, True),
        (b"who,what,stars\nM,M,1\n", TEXTS, TEXTS, True),  # a rating would be a number
        (b"12,M\nM,M\n", TEXTS, TEXTS, False),
        (b"The Kid,M\nM,M\n", TEXTS, TEXTS, False),
        (b"user a,M\nM,M\n", np.array(["M", "user a"]), TEXTS, False),
        (b"user a,M\nM,M\n", TEXTS, np.array(["M", "x"]), False),
    ],
)
def test_a_first_line_of_pairs_is_a_header_where_it_can_be_nothing_else(
    tmp_path: Path, content: bytes, users: np.ndarray, items: np.ndarray, header: bool
) -> None:
    source = write(tmp_path, content)
    if b"user a" in content and "user a" not in users:
        with pytest.raises(InputError, match="line 1: user 'user a' is none of"):
            read_new(source, users, items)
    else:
        assert len(read_new(source, users, items).users) == 2 - header


@pytest.mark.parametrize(
    ("content", "users", "told"),
    [
        (b"7,M\n\n8,M\n9,M\n", WHOLE, "line 3: user '8' is none of the 3 users that the model was trained on; leave"),
        (b"7,M\nanna,M\n", WHOLE, "line 2: user 'anna' is none of the 3 users"),
        (b"7,M\n99999999999999999999,M\n", WHOLE, "line 2: user '99999999999999999999' is none"),
        (b"7,m\n8,M\n", WHOLE, "line 1: item 'm' is none of the 3 items"),
        (b"who,what\nM,M\n", TEXTS, "line 1: user 'who' is none of"),
        (b"7\n", WHOLE, "line 1: has 1 of the columns user, item, rating; want two at least"),
        (b"7,M\n7,M,3\n", WHOLE, "line 2: has 3 columns and the first row 2; fix the row"),
        (b"7,M\n7,\n", WHOLE, "line 2: the item is empty; name each"),
        (b"7,M,3\n2,M,\n", WHOLE, "line 2: the rating is empty; write a number"),
        (b"user,item\n", WHOLE, "has a header and no ratings; give at least one"),
        (b"", WHOLE, "is empty"),
    ],
)
def test_pairs_that_cannot_be_asked_are_told_in_one_line(
    tmp_path: Path, content: bytes, users: np.ndarray, told: str
) -> None:
    with pytest.raises(InputError) as caught:
        new(tmp_path, content, users)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_built_in_set_has_numbers_for_names() -> None:
    found = read_new("ratings", np.arange(1500)[::-1], np.arange(600))
    of = read("ratings", 1).ratings
    assert (1499 - found.users[:9]).tolist() == of.user_names[of.users[:9]].tolist()
    texts = np.arange(1500).astype(np.str_)
    assert (read_new("ratings", texts, np.arange(600)).users + found.users == 1499).all()
    with pytest.raises(InputError, match=r"ratings: rating \d+: user '\d+' is none of the 3 users"):
        read_new("ratings", TEXTS, TEXTS)


# -- quotes, headers, and what stands between columns ------------------------------------------------------------------

NAMES = [(1, 'Heroes, "weird al', 3.0), (2, '12" singles', 4.0), (3, '"', 1.0), (4, 'weird al" Yankovic', 2.5)]


@pytest.mark.parametrize("separator", ["\t", "::", "\t\t"])
@pytest.mark.parametrize("rows", [NAMES, NAMES[1:], NAMES[:1] + NAMES[3:]])
def test_a_quote_has_no_meaning_but_between_commas_and_semicolons(
    separator: str, rows: list[tuple[int, str, float]]
) -> None:
    for more in ((), (880000000,)):  # the name is in the midst of a line, and further columns after it
        assert pairs(text(separator, rows=[(*row, *more) for row in rows])) == rows


@pytest.mark.parametrize("mark", [",", ";"])
def test_cells_in_quotes_may_hold_what_is_between_cells(mark: str) -> None:
    rows = [(1, f"M{mark} a film", 3.0), (2, 'the "Kid"', 4.0), (3, '12" singles', 1.0)]
    lines = [f'"1"{mark}"M{mark} a film"{mark}"3"', f'2{mark}"the ""Kid"""{mark}4', f'3{mark}12" singles{mark}1']
    assert pairs("\n".join(lines).encode()) == rows


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'9,L,3\n1,"weird al,3\n2,M,4\n3,"N",5\n4,O,1\n', 2),
        (b'1,L,3,c\n\n2,M,4,"a\n3,N,5,b"\n', 3),  # in a column that is passed over
        (b'user;item;rating\r\n1;L;3\r\n2;"M;4\r\n3;N";5;4\r\n', 3),
    ],
)
def test_a_quote_that_takes_the_next_lines_for_its_cell_is_refused(content: bytes, line: int) -> None:
    with pytest.raises(InputError, match=rf"a.csv: line {line}: a quote is opened and not closed in the line"):
        read_ratings("a.csv", content)


@pytest.mark.parametrize(
    ("header", "order"),
    [
        ("user_id,book_id,is_read,rating,is_reviewed", (0, 1, 3)),
        ("user_id,item_id,timestamp,rating", (0, 1, 3)),
        ("movieId,userId,rating,timestamp", (1, 0, 2)),
        ('"User-ID","ISBN","Image","Book-Rating"', (0, 1, 3)),
        ("timestamp,rating,item,user", (3, 2, 1)),
        ("user_id:token,item_id:token,rating:float,timestamp:float", (0, 1, 2)),
        ("who,what,grade,when", (0, 1, 2)),
        ("who,what,grade_at,stars", (0, 1, 3)),
        ("user,track,avg_rating,rating", (0, 1, 3)),
        (",user,item,rating", (1, 2, 3)),
        (",who,what,grade", (1, 2, 3)),
        ("Unnamed: 0,who,what,grade", (1, 2, 3)),
    ],
)
@pytest.mark.parametrize("separator", [",", "\t", ";", " ", "::"])
def test_a_header_says_which_columns_are_which(header: str, order: tuple[int, int, int], separator: str) -> None:
    if header.startswith((",", "Unnamed")) and separator == " ":
        return  # blanks have no empty cell between them
    lines = [header.replace(",", separator)]
    for row in ROWS:
        cells: list[object] = [0, 1, 880000000, 1, 1][: header.count(",") + 1]
        for column, cell in zip(order, row, strict=True):
            cells[column] = cell
        lines.append(separator.join(map(str, cells)))
    content = "\n".join(lines).encode()
    assert pairs(content) == ROWS
    assert bool(read_ratings("a.csv", content).notes) == (order != (0, 1, 2))
    assert read_pairs("a.csv", content, np.arange(9), np.arange(9)).values is not None


def test_what_a_header_says_is_told() -> None:
    found = read_ratings("a.csv", b"time,movie,user,stars\n1,2,3,4\n2,2,4,5\n")
    assert found.notes == ("the columns user, item, rating are 'user', 'movie', 'stars'",)
    assert (found.user_names.tolist(), found.item_names.tolist(), found.values.tolist()) == ([3, 4], [2], [4, 5])


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (
            "userId,movieId,timestamp",
            "line 1: no column of 'userId', 'movieId', 'timestamp' is the rating; call one rating",
        ),
        ("date,user,grade", "line 1: no column of 'date', 'user', 'grade' is the item; call one item"),
        ("user,score,stars,item", "line 1: 'score' and 'stars' may both be the rating; rename one of them"),
        (",user,item", "line 1: no column of 'user', 'item' is the rating"),
    ],
)
def test_a_header_that_leaves_a_column_open_is_refused(header: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_ratings("a.csv", f"{header}\n{'1,' * header.count(',')}2\n".encode())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [
    b"7 30 4\n7 10 2.5\n2 30 1\n40 20 5\n",
    b"  7  30 4 \r\n7 10\t2.5  \r\n\r\n  \r\n 2   30 1\r\n40 20  5",
    b"user movie stars\n7 30 4\n7 10 2.5\n2 30 1\n40 20 5\n",
    b"7\t\t30\t\t4\n7\t\t10\t\t2.5\n2\t\t30\t\t1\n40\t\t20\t\t5\n",
    b"\xef\xbb\xbf7;30;4\n7;10;2.5\n2;30;1\n40;20;5\n",
    b'"User-ID";"ISBN";"Book-Rating"\n"7";"30";"4"\n"7";"10";"2.5"\n"2";"30";"1"\n"40";"20";"5"\n',
])  # fmt: skip
def test_blanks_two_tabs_and_semicolons_are_read(content: bytes) -> None:
    assert pairs(content) == ROWS


def test_two_tabs_are_one_mark_only_where_all_lines_have_them() -> None:
    with pytest.raises(InputError, match="line 1: the item is empty; name each"):
        read_ratings("a.tsv", b"7\t\t3\t880\n8\t2\t3\t881\n")
    with pytest.raises(InputError, match="line 1: the item is empty; name each"):
        read_ratings("a.tsv", b"7\t\t3\t\t880\n8\t\t2\t3\t881\n")


def test_a_time_is_no_rating_of_pairs_and_an_index_no_user(tmp_path: Path) -> None:
    users, items = np.array([7, 8]), np.array([1, 2])
    found = read_new(write(tmp_path, b"user,item,timestamp\n8,1,880\n7,2,881\n"), users, items)
    assert (found.users.tolist(), found.items.tolist(), found.values) == ([1, 0], [0, 1], None)
    found = read_new(write(tmp_path, b",item,user\n0,1,8\n1,2,7\n"), users, items)
    assert (found.users.tolist(), found.items.tolist(), found.values) == ([1, 0], [0, 1], None)
    assert found.notes == ("the columns user, item are 'user', 'item'",)
    texts = np.array(["a", "b"])
    found = read_new(write(tmp_path, b"film,user\nb,a\n"), texts, texts)
    assert (found.users.tolist(), found.items.tolist()) == ([0], [1])


@pytest.mark.parametrize("name", ["u1.base", "ratings", "ml.inter", "ratings.dat.xz"])
def test_ratings_are_read_whatever_their_file_is_called(tmp_path: Path, name: str) -> None:
    content = text("\t", rows=[(u, i, u * i % 7, 880000000) for u in range(9) for i in range(9)])
    assert read(write(tmp_path, lzma.compress(content) if name.endswith("xz") else content, name), 2).rows > 60


def test_one_long_name_does_not_make_a_table_of_all_names_that_fills_the_memory() -> None:
    short = b"".join(b"u%d,%d,1\n" % (u, u % 9) for u in range(20_000))
    with pytest.raises(InputError, match="line 20001: the user has 5000 bytes, too many for one of 20001 names"):
        read_ratings("a.csv", short + b"x" * 5000 + b",1,1\n")
    assert len(read_ratings("a.csv", short + b"x" * 200 + b",1,1\n")) == 20_001
