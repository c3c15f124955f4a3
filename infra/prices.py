"""Price files and catalogues: read whole columns at once, and say in one line what is wrong with a bad one."""

import gzip
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from bidding.catalog import Catalog, CatalogRow
from bidding.model import InstanceType, Market
from bidding.money import MICROS_PER_DOLLAR, to_micros
from bidding.traces import Trace, TraceSet
from infra.errors import InputError

_PRICE_COLUMNS = {
    "timestamp": pa.timestamp("s", tz="UTC"),
    "instance_type": pa.string(),
    "az": pa.string(),
    "product": pa.string(),
    "price": pa.float64(),
}
_CATALOG_COLUMNS = {
    "instance_type": pa.string(),
    "vcpu": pa.int64(),
    "memory_gib": pa.float64(),
    "on_demand_usd_per_h": pa.string(),
}
#: The first row of a file's data is its second line.
_FIRST_ROW = 2


def read_prices(path: Path) -> TraceSet:
    """Return the traces of a price file, `timestamp,instance_type,az,product,price`, plain or gzipped.

    Rows are in time order within a market, not across markets.

    Raises
    ------
    InputError
        Naming the file, and the row where one is at fault.
    """
    table = _read_csv(path, _PRICE_COLUMNS)
    prices = table["price"].to_numpy()
    _refuse_rows(path, ~np.isfinite(prices), "a price that is not a finite number")
    _refuse_rows(path, prices < 0, "a negative price")
    for column in ("instance_type", "az"):
        _refuse_rows(path, pc.equal(pc.utf8_length(table[column]), 0).to_numpy(zero_copy_only=False), f"no {column}")
    micros = np.rint(prices * MICROS_PER_DOLLAR).astype(np.int64)
    times = table["timestamp"].cast(pa.int64()).to_numpy()
    names = pc.binary_join_element_wise(table["instance_type"], table["az"], "/").combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    codes, times, micros = codes[order], times[order], micros[order]
    backwards = np.append(False, (np.diff(times) < 0) & (np.diff(codes) == 0))
    if backwards.any():
        row = int(order[backwards.argmax()]) + _FIRST_ROW
        raise InputError(f"{path}, row {row}: time goes backwards within a market; sort the file by time")
    starts = np.searchsorted(codes, np.arange(len(names.dictionary) + 1))
    return TraceSet(
        {
            Market.parse(name): Trace(times[starts[i] : starts[i + 1]], micros[starts[i] : starts[i + 1]])
            for i, name in enumerate(names.dictionary.to_pylist())
        }
    )


def write_prices(path: Path, traces: TraceSet, product: str = "Linux/UNIX") -> None:
    """Write `traces` as a price file, gzipped where the name ends in `.gz`; whole, or not at all."""
    lengths = [len(trace) for trace in traces.values()]
    repeated = np.repeat(np.arange(len(traces)), lengths)
    table = pa.table(
        {
            "timestamp": pa.array(np.concatenate([t.times_s for t in traces.values()]), pa.int64()).cast(
                _PRICE_COLUMNS["timestamp"]
            ),
            "instance_type": pa.array([m.instance_type for m in traces]).take(pa.array(repeated)),
            "az": pa.array([m.zone for m in traces]).take(pa.array(repeated)),
            "product": pa.array([product]).take(pa.array(np.zeros(len(repeated), dtype=np.int64))),
            "price": np.concatenate([t.prices_micros for t in traces.values()]) / MICROS_PER_DOLLAR,
        }
    )
    table = table.set_column(0, "timestamp", pc.strftime(table["timestamp"], format="%Y-%m-%dT%H:%M:%SZ"))
    new = path.with_name(path.name + ".new")
    compress: Any = gzip.open if path.suffix == ".gz" else open
    with compress(new, "wb") as out:
        pyarrow.csv.write_csv(table, out, pyarrow.csv.WriteOptions(quoting_style="none"))
    new.replace(path)


def read_catalog(path: Path | None = None) -> Catalog:
    """Return the catalogue in a CSV file; None is the one that ships.

    Raises
    ------
    InputError
        Naming the file, and the row where one is at fault.
    """
    path = path or Path(str(files("infra").joinpath("data/catalog.csv")))
    table = _read_csv(path, _CATALOG_COLUMNS, optional={"from_date": pa.date32()})
    rows = []
    for number, row in enumerate(table.to_pylist(), _FIRST_ROW):
        try:
            price = to_micros(row["on_demand_usd_per_h"])
            if price <= 0 or row["vcpu"] <= 0:
                raise ValueError("price and vcpu must be above 0")
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}, row {number}: {error}") from None
        day: date | None = row.get("from_date")
        rows.append(CatalogRow(InstanceType(row["instance_type"], row["vcpu"], row["memory_gib"], price), day))
    return Catalog(rows)


def _read_csv(path: Path, columns: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    """Return the named columns of a CSV file as a table without nulls in the required ones."""
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a directory; give a CSV file")
        with pa.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None) as stream:
            head = pyarrow.csv.open_csv(stream).schema.names
        wanted = columns | {name: kind for name, kind in (optional or {}).items() if name in head}
        if missing := [name for name in columns if name not in head]:
            raise InputError(f"{path}: no column {missing[0]!r}; wanted are {', '.join(columns)}")
        with pa.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None) as stream:
            table = pyarrow.csv.read_csv(
                stream,
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=wanted, include_columns=list(wanted), strings_can_be_null=False
                ),
            )
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {_one_line(error)}") from None
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: cannot be read: {_one_line(error)}") from None
    if not table.num_rows:
        raise InputError(f"{path}: holds no rows")
    for name in columns:
        _refuse_rows(path, table[name].is_null().to_numpy(zero_copy_only=False), f"no {name}")
    return table


def _refuse_rows(path: Path, bad: Any, what: str) -> None:
    """Raise for the first row at which `bad` (bool, one a row) is set."""
    if bad.any():
        raise InputError(f"{path}, row {int(np.argmax(bad)) + _FIRST_ROW}: {what}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
