"""A price file that cannot be used: each verb that reads one refuses it in one line, and nothing is written."""

import re
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from proteus_spot.flows.cli.commands.market_data.evictions import evictions
from proteus_spot.flows.cli.commands.market_data.traces import traces
from proteus_spot.flows.cli.commands.planning.backtest import backtest
from proteus_spot.flows.cli.commands.planning.bill import bill
from proteus_spot.flows.cli.commands.planning.plan import plan
from proteus_spot.infra.errors import InputError
from tests.support.price_rows import HEADER, price_row

CATALOG = "instance_type,region,vcpu,memory_gib,on_demand_usd_per_h\nc4.xlarge,us-east-1,4,7.5,0.209\n"

#: Verbs by what they are called; {prices} is the file.
VERBS: Mapping[str, tuple[click.Command, str]] = {
    "backtest": (backtest, "--prices {prices} --hours 1 --starts 2 --json out.json --csv out.csv --report out.html"),
    "plan": (plan, "--prices {prices} --hours 1 --starts 2 --json out.json --picture out.png"),
    "bill": (
        bill,
        (
            "--prices {prices} --market m4.xlarge/us-east-1a --count 1 --bid 1 --at 2016-06-02T00:00:00Z --hours 1 "
            "--json o"
        ),
    ),
    "traces describe": (traces, "describe {prices} --json out.json --picture out.png"),
    "traces convert": (traces, "convert {prices} out.parquet"),
    "evictions fit": (evictions, "fit --prices {prices} --out out.npz"),
}


def row(day: int, product: str = "Linux/UNIX", kind: str = "m4.xlarge", price: str = "0.03") -> str:
    return price_row(f"2016-06-{day:02}T00:00:00Z", kind, price=price, product=product)


#: What is wrong with a file, its lines, and what must be said of it.
FILES: Mapping[str, tuple[list[str], str]] = {
    "unsorted rows": ([HEADER, row(1), row(3), row(2)], r"bad\.csv: row 4: earlier than the market's row before it"),
    "mixed currencies": (
        [f"{HEADER},currency", f"{row(1)},USD", f"{row(2)},EUR"], r"bad\.csv: row 3: currencies 'EUR' and 'USD'"
    ),
    "mixed products": (
        [HEADER, row(1), row(2, product="Windows")], r"bad\.csv: row 3: products 'Windows' and 'Linux/UNIX'"
    ),
    "no price": ([HEADER, row(1), row(2, price="")], r"bad\.csv: row 3: no price"),
    "no rows": ([HEADER], r"bad\.csv: .*no rows"),
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalog.csv").write_text(CATALOG)
    return tmp_path


def refused(here: Path, verb: str, lines: list[str], *more: str) -> str:
    """Return the line that `verb` refuses a file of these lines with."""
    (here / "bad.csv").write_text("\n".join(lines) + "\n")
    before = sorted(path.name for path in here.rglob("*"))
    command, arguments = VERBS[verb]
    asked = [*arguments.format(prices="bad.csv").split(), *more]
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(command, asked, catch_exceptions=False)
    assert caught.value.exit_code == 2
    assert sorted(path.name for path in here.rglob("*")) == before
    line = str(caught.value)
    assert "\n" not in line
    assert ";" in line, "the fix comes after the fault"
    return line


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_refuses_it(here: Path, verb: str, what: str) -> None:
    lines, said = FILES[what]
    assert re.search(said, refused(here, verb, lines))


@pytest.mark.parametrize("verb", ["backtest", "plan", "traces describe"])
def test_a_type_that_the_catalogue_does_not_know(here: Path, verb: str) -> None:
    line = refused(here, verb, [HEADER, *(row(day) for day in range(1, 29))], "--catalog", "catalog.csv")
    assert re.search(r"bad\.csv: row 2: instance type m4\.xlarge is not in the catalogue; give a --catalog", line)


@pytest.mark.parametrize("verb", ["backtest", "plan"])
def test_days_without_any_price(here: Path, verb: str) -> None:
    line = refused(here, verb, [HEADER, *(row(day) for day in (*range(1, 22), 27, 28, 29))])
    assert re.search(r"the evaluation has a gap: no market has a price in the 144 h .*; .*--allow-gaps", line)


def test_a_model_is_not_fitted_on_a_window_outside_the_file(here: Path) -> None:
    lines = [HEADER, *(row(day, price=f"0.0{day % 2 + 3}") for day in range(1, 29))]
    assert "--from 2017-01-01" in refused(here, "evictions fit", lines, "--from", "2017-01-01")
