"""`proteus evictions`: what it prints, what it writes, and how it refuses."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from matplotlib.image import imread

from proteus_spot.flows.cli.commands.market_data.evictions import evictions
from proteus_spot.flows.cli.commands.market_data.traces import traces
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.eviction_model_files import read_model
from proteus_spot.infra.settings import load_settings

ADVISOR = {
    "ranges": [{"index": index, "max": top} for index, top in enumerate((5, 11, 16, 22, 100))],
    "spot_advisor": {"us-east-1": {"Linux": {"c4.large": {"r": 1}, "m4.large": {"r": 4}}}},
}
UP = {"metadata": {"gap_seconds": 600}, "data": ([1] * 40 + [0] * 4) * 30}


def run(*arguments: object) -> Result:
    """Run the group in this process; what it raises is raised here."""
    return CliRunner().invoke(evictions, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A market of eight days, and what is told of capacity."""
    folder = tmp_path_factory.mktemp("market")
    made = ["generate", folder / "p.csv.gz", "--days", "8", "--types", "c4.large,m4.large", "--climate", "lively"]
    done = CliRunner().invoke(traces, list(map(str, made)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (folder / "advisor.json").write_text(json.dumps(ADVISOR))
    (folder / "us-west-2a_v100_1.json").write_text(json.dumps(UP))
    for model in ("table", "survival", "conditioned"):
        fitted = run("fit", "--model", model, "--prices", folder / "p.csv.gz", "--to", "2016-06-06",
                     "--out", folder / f"{model}.npz")  # fmt: skip
        assert fitted.exit_code == 0, fitted.output
    return folder


def test_a_model_is_fitted_and_shown_as_a_table_and_a_picture(folder: Path, tmp_path: Path) -> None:
    done = run("show", folder / "conditioned.npz", "--picture", tmp_path / "c.png")
    assert done.exit_code == 0
    assert "conditioned, 4 markets, 48 states each, fitted on 2016-06-01 00:0" in done.stdout
    assert "to 2016-06-07 00:00 UTC" in done.stdout, "the last day is in it"
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("m4.large/us-east-1b"))
    assert row.count("/") == 1 + 6 * 2
    assert "time above the bid in the last day" in done.stdout
    assert "1 h and more" in done.stdout
    assert imread(tmp_path / "c.png").std() > 0.05


def test_figures_for_machines_go_alone_to_standard_output(folder: Path, tmp_path: Path) -> None:
    made = json.loads(run("fit", "--prices", folder / "p.csv.gz", "--out", tmp_path / "m.npz", "--json", "-").stdout)
    assert (made["model"], made["markets"], made["states"], made["deltas"]) == ("survival", 4, 1, 26)
    shown = json.loads(run("show", tmp_path / "m.npz", "--json", "-").stdout)
    assert shown["fitted"] == made["fitted"]
    assert len(shown["markets"]) == 4
    for market in shown["markets"]:
        taken = [bid["taken_1_h"] for bid in market["bids"]]
        assert taken == sorted(taken, reverse=True)


def test_models_are_checked_on_later_days(folder: Path, tmp_path: Path) -> None:
    files = [folder / f"{model}.npz" for model in ("table", "survival", "conditioned")]
    on = ["--prices", folder / "p.csv.gz", "--from", "2016-06-07"]
    done = run("check", *files, *on, "--picture", tmp_path / "k.png", "--json", tmp_path / "k.json")
    assert done.exit_code == 0
    assert imread(tmp_path / "k.png").std() > 0.05
    found = json.loads((tmp_path / "k.json").read_text())
    assert [model["model"] for model in found["models"]] == ["table", "survival", "conditioned"]
    assert not found["warnings"]
    quarter, hour = found["models"][1]["scores"]
    assert (quarter["horizon_s"], hour["horizon_s"]) == (900, 3600)
    assert hour["brier_gain"] == 0, "within the hour the table says what survival does"
    assert f"{hour['brier']:.4f}" in done.stdout
    assert sum(point["forecasts"] for point in hour["reliability"]) == hour["forecasts"] > 0


def test_what_was_fitted_is_checked_only_when_told_so(folder: Path) -> None:
    on = ["--prices", folder / "p.csv.gz", "--from", "2016-06-06", "--json", "-"]
    with pytest.raises(InputError, match=r"survival.npz: was fitted on .* overlaps .*--allow-overlap") as caught:
        run("check", folder / "survival.npz", *on)
    assert caught.value.exit_code == 2
    done = run("check", folder / "survival.npz", *on, "--allow-overlap")
    assert "the result is not honest" in done.stderr
    assert len(json.loads(done.stdout)["warnings"]) == 1


def test_predictors_are_fitted_kept_and_checked_on_the_days_that_were_left_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTEUS_PREDICTORS_URL", f"file://{tmp_path}/kept")
    load_settings.cache_clear()
    done = run("fit", "--predictor", "logistic", "--prices", folder / "p.csv.gz", "--to", "2016-06-05",
               "--json", tmp_path / "f.json")  # fmt: skip
    load_settings.cache_clear()
    assert "logistic, 4 of 4 markets, fitted on 2016-06-01 00:00 to 2016-06-05 00:00 UTC" in done.stdout
    found = json.loads((tmp_path / "f.json").read_text())
    assert found["file"] == f"file://{tmp_path}/kept/logistic.npz"
    assert found["checked"]["from_s"] == found["fitted"]["until_s"]
    _, hour = found["scores"]
    assert 0 < hour["brier"] < 0.1
    assert f"{hour['brier']:.4f}" in done.stdout
    shown = json.loads(run("show", tmp_path / "kept" / "logistic.npz", "--json", "-").stdout)
    assert (shown["model"], len(shown["markets"])) == ("logistic", 4)
    checked = run("check", folder / "table.npz", tmp_path / "kept" / "logistic.npz", "--prices", folder / "p.csv.gz",
                  "--from", "2016-06-07", "--json", "-")  # fmt: skip
    assert json.loads(checked.stdout)["models"][1]["scores"][1]["brier_gain"] > 0.01


def test_capacity_comes_from_bands_and_from_availability(folder: Path, tmp_path: Path) -> None:
    up = folder / "us-west-2a_v100_1.json"
    out = tmp_path / "m.npz"
    done = run("fit", "--model", "capacity", "--advisor", folder / "advisor.json", "--prices", folder / "p.csv.gz",
               "--availability", up, "--to", "1970-01-06", "--out", out)  # fmt: skip
    assert "capacity, 5 markets, fitted on 1970-01-01 00:00 to 1970-01-07 00:00 UTC" in done.stdout
    assert [str(market) for market in read_model(out).markets][-1] == "v100_1/us-west-2a"
    shown = json.loads(run("show", out, "--json", "-", "--picture", tmp_path / "m.svg").stdout)
    hourly = {market["market"]: market["bids"][0]["taken_1_h"] for market in shown["markets"]}
    assert 0 < hourly["c4.large/us-east-1a"] < hourly["m4.large/us-east-1a"] < 0.001 < hourly["v100_1/us-west-2a"]
    checked = run("check", out, "--availability", f"v100_1/us-west-2a={up}", "--from", "1970-01-07", "--json", "-")
    (model,) = json.loads(checked.stdout)["models"]
    assert model["scores"][1]["base_rate"] == pytest.approx(59 / 400, abs=0.02)
    assert model["scores"][1]["calibration_error"] < 0.02


def test_an_advisor_alone_needs_the_markets(folder: Path, tmp_path: Path) -> None:
    bands = ["fit", "--model", "capacity", "--advisor", folder / "advisor.json", "--out", tmp_path / "m.npz"]
    done = run(*bands, "--market", "c4.large/us-east-1f", "--market", "x9.large/us-east-1a")
    assert "capacity, 1 markets" in done.stdout
    with pytest.raises(InputError, match="say which markets"):
        run(*bands)


BAD: list[tuple[list[str], str]] = [
    (["fit", "--model", "x", "--prices", "{p}", "--out", "{o}"], "--model x: there is no such model; want table, surv"),
    (["fit", "--prices", "{p}"], "want --out FILE"),
    (["fit", "--model", "table", "--predictor", "revpred", "--prices", "{p}"], "--model or --predictor, not both"),
    (["fit", "--predictor", "none", "--prices", "{p}"], "--predictor none: there is no such predictor to fit"),
    (["fit", "--predictor", "logistic", "--out", "{o}"], "--predictor logistic: is learnt from --prices FILE alone"),
    (["fit", "--predictor", "logistic", "--prices", "{p}", "--from", "2016-06-08T22:50", "--out", "{o}"], "too short"),
    (["fit", "--out", "{o}"], "--model survival: is learnt from --prices"),
    (["fit", "--prices", "{p}", "--advisor", "{f}/advisor.json", "--out", "{o}"], "an advisor is for --model capacity"),
    (["fit", "--model", "capacity", "--out", "{o}"], "want --advisor FILE or --availability FILE"),
    (["fit", "--prices", "none.csv", "--out", "{o}"], "none.csv: there is no such file"),
    (["fit", "--prices", "{p}", "--out", "{f}/none/m.npz"], "--out .*none/m.npz: there is no directory"),
    (["fit", "--prices", "{p}", "--from", "2016-07-01", "--out", "{o}"],
     "--from 2016-07-01: begins outside .*p.csv.gz"),
    (["fit", "--prices", "{p}", "--from", "x", "--out", "{o}"], "--from x: is not a UTC day or time"),
    (["fit", "--prices", "{p}", "--to", "2016-05-01", "--out", "{o}"], "want at least an hour"),
    (["fit", "--prices", "{p}", "--market", "c4.large/x", "--out", "{o}"], "has no prices"),
    (["fit", "--model", "capacity", "--advisor", "{f}/advisor.json", "--market", "c4.large", "--out", "{o}"],
     "not a market"),
    (["fit", "--model", "capacity", "--advisor", "{f}/advisor.json", "--market", "q/us-east-1a", "--out", "{o}"],
     "has no band for q/us-east-1a"),
    (["fit", "--model", "capacity", "--advisor", "{f}/advisor.json", "--market", "m4.large/us-east-1a",
      "--open-band", "0.1", "--out", "{o}"], "--open-band: the share of the open band must be in"),
    (["fit", "--model", "capacity", "--availability", "{f}/advisor.json", "--out", "{o}"], "want TYPE/ZONE.*=FILE"),
    (["fit", "--model", "capacity", "--availability", "a/b={f}/advisor.json", "--out", "{o}"],
     "is not an availability trace"),
    (["show", "{p}"], "p.csv.gz: is not an eviction model"),
    (["show", "{m}", "--picture", "{f}/x.txt"], "end it with .png"),
    (["check", "{m}"], "want --prices FILE, or --availability"),
    (["check", "{m}", "{m}", "--prices", "{p}"], "name each FILE once"),
    (["check", "{m}", "--availability", "{f}/us-west-2a_v100_1.json"], "kind survival; check it on --prices"),
    (["check", "{m}", "--prices", "{p}", "--from", "2016-06-07", "--json", "{f}/none/x"], "there is no directory"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), BAD)
def test_what_is_wrong_is_said_and_nothing_is_written(
    folder: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    before = sorted(folder.iterdir())
    names: dict[str, Any] = {
        "p": folder / "p.csv.gz",
        "o": tmp_path / "m.npz",
        "f": folder,
        "m": folder / "survival.npz",
    }
    with pytest.raises(InputError, match=says) as caught:
        run(*(argument.format(**names) for argument in arguments))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("verb", ["fit", "show", "check"])
def test_help_has_an_example(verb: str) -> None:
    done = run(verb, "--help")
    assert done.exit_code == 0
    assert f"\n    proteus evictions {verb} " in done.output, "on a line of its own"


@pytest.mark.slow
@pytest.mark.skipif("PROTEUS_TRACES" not in os.environ, reason="PROTEUS_TRACES names no folder of real price files")
def test_on_real_later_months_conditions_help(tmp_path: Path) -> None:
    prices = Path(os.environ["PROTEUS_TRACES"]) / "us-east-1-2016-early-summer-m4.csv.gz"
    for model in ("table", "conditioned"):
        run("fit", "--model", model, "--prices", prices, "--to", "2016-05-31", "--out", tmp_path / f"{model}.npz")
    on = ["--prices", prices, "--from", "2016-06-01", "--json", "-"]
    found = json.loads(run("check", tmp_path / "table.npz", tmp_path / "conditioned.npz", *on).stdout)
    for score in found["models"][1]["scores"]:
        assert score["brier_gain"] > 2 * score["brier_gain_se"] > 0
