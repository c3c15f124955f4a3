"""Every option of every verb takes any text: it is taken, or refused in one line with exit code 2, and never a fault.

The work itself is cut off where all options have been looked at (`SEAMS`): what is tried is the command, its checks,
and the files that it reads.
"""

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proteus_spot.flows.cli.main import cli
from tests.support.backtests import small_file
from tests.support.cli_process import inside, proteus

#: The first call of each verb after its last check; a verb that has none does its work.
SEAMS = (
    "proteus_spot.flows.local_market.market_run.own_directory",
    "proteus_spot.flows.local_training.own_directory",
    "proteus_spot.tasks.local_nodes.two_process_check.cut_data",
    "proteus_spot.flows.local_market.standing_market.own_directory",
    "proteus_spot.studies.plan.planner._run",
    "proteus_spot.studies.backtest.comparison.run_cells",
    "proteus_spot.benchmarks.runner.measure",
    "proteus_spot.infra.market_data.eviction_model_files.write_model",
    "proteus_spot.tasks.panic.OwnedMachines",
    "proteus_spot.tasks.doctor.checks.examine",
    "prometheus_client.start_http_server",
)
#: The least that each verb wants.
LEAST: Mapping[str, tuple[str, ...]] = {
    "run": (),
    "train": ("mlr",),
    "check": ("mlr",),
    "predict": ("none", "--topics", "2", "--out", "-"),
    "sweep run": ("sweep.yaml",),
    "sweep local": ("none.yaml",),
    "sweep submit": ("sweep.yaml",),
    "plan": ("--prices", "small.csv", "--vcpu-hours", "50", "--starts", "2"),
    "backtest": ("--prices", "small.csv", "--starts", "2", "--hours", "1"),
    "bill": (
        *("--prices", "small.csv", "--market", "m4.xlarge/us-east-1a", "--count", "1", "--bid", "0.05"),
        *("--at", "2016-06-02T00:00:00Z", "--hours", "2"),
    ),
    "up": (),
    "submit": ("none.yaml",),
    "jobs": (),
    "stop": ("job",),
    "panic": ("--owner", "somebody"),
    "report": ("job",),
    "sweep show": ("job",),
    "sweep stop": ("job",),
    "sweep report": ("job",),
    "cost": (),
    "logs": ("job",),
    "metrics": (),
    "market": ("c4.large/us-east-1a",),
    "doctor": (),
    "catalog fetch": ("none/out.csv",),
    "traces describe": ("small.csv",),
    "traces generate": ("none/out.csv", "--days", "1"),
    "traces convert": ("small.csv", "none/out.csv"),
    "evictions fit": ("--prices", "small.csv", "--out", "out.npz", "--model", "table"),
    "evictions check": ("none.npz", "--prices", "small.csv"),
    "evictions show": ("none.npz",),
    "bench": (),
}
#: They name where something is written.
WRITTEN = frozenset({"--json", "--csv", "--dir", "--out", "--report", "--picture", "--pictures"})
ODD = (
    *("", "  ", "nan", "inf", "-inf", "-0", "-0.0", "0", "-1", "1", "2.5", "1e309", "1e300", "1e-320", "1_000", "0x10"),
    *("99999999999999999999999", "9" * 5000, "\u0661\u0662", "\u00bd", "1,,2", ",", "1,2", "1 2", "+5", "1e3", "01"),
    *(
        "--",
        "a",
        "a\nb",
        "\u00e9",
        "1:30",
        "\udcff",
        "/",
        "x=1",
        "a" * 300,
        "\u2212" + "1",
        "1;2",
        "True",
        "None",
        "'",
        "%s",
    ),
)


def _leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _leaves(command, f"{path}{name} ")
        else:
            yield path + name, command


VERBS = dict(_leaves(cli))


def _options(verb: str) -> list[str]:
    options = (each for each in VERBS[verb].params if isinstance(each, click.Option) and not each.is_flag)
    return [each.opts[0] for each in options if each.opts[0] not in WRITTEN]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a price file, in a process in which every verb ends well at its seam."""
    directory = tmp_path_factory.mktemp("fuzz") / "here"
    directory.mkdir()
    small_file(directory / "small.csv")
    (directory / "sweep.yaml").write_text(
        "{trial: mlr, space: {step: {choice: [0.1]}}, metric: {name: loss}, max_trial_steps: 3, markets: {cpus: 1+}}"
    )

    def end(*_: object, **__: object) -> NoReturn:
        raise SystemExit(0)

    with pytest.MonkeyPatch.context() as patch:
        for seam in SEAMS:
            importlib.import_module(seam.rpartition(".")[0])
            patch.setattr(seam, end)
        yield directory


def test_every_verb_is_tried() -> None:
    assert set(LEAST) == set(VERBS)


@pytest.mark.parametrize("verb", [verb for verb in LEAST if _options(verb)])
def test_an_option_is_taken_or_refused_in_one_line(here: Path, verb: str) -> None:
    before = sorted(path.name for path in here.iterdir())
    text = st.sampled_from(ODD) | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)

    @settings(max_examples=30, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(option=st.sampled_from(_options(verb)), value=text)
    def attempt(option: str, value: str) -> None:
        arguments = (*verb.split(), *LEAST[verb], f"{option}={value}" if option.startswith("--") else option + value)
        outcome = inside(*arguments, cwd=here, home=here.parent / "home")
        assert outcome.code in (0, 2), outcome
        assert "Traceback" not in outcome.err
        if outcome.code == 2:
            said = [line for line in outcome.err.splitlines() if not line.startswith("note: ")]
            assert len(said) == 1, said
            assert said[0].startswith("proteus: ")
            assert len(said[0]) < 2000
        assert sorted(path.name for path in here.iterdir()) == before

    attempt()


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "mlr", "--clocks", "\u00bd"),
        ("stop", "\udcff"),
        ("plan", "--vcpu-hours", "1e309"),
        ("bill", "--prices", "a" * 300, "--market", "a/b", "--count", "1", "--bid", "1", "--at", "x", "--hours", "1"),
        ("run", "--job", "j", "--json", "9" * 300),
    ],
)
def test_a_process_of_its_own_says_the_same(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    outcome = proteus(*arguments, cwd=tmp_path, home=tmp_path.parent / "home")
    assert (outcome.code, outcome.out, len(outcome.err.splitlines())) == (2, "", 1), outcome
    assert outcome.err.startswith("proteus: ")
    assert list(tmp_path.iterdir()) == []
