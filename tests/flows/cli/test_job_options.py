"""Options that are fields of a job: what the model says of a field, the command line says too."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from proteus_spot.flows.cli.job_options import AUTO, JobCommand, faults_by_option, job_option, job_options
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.job_spec import JobSpec, Training


@click.command(cls=JobCommand)
@job_options("job_id", "training.clocks", "training.hours", "training.nan", "training.max_partitions_per_node")
@job_option("training.stage", default=AUTO)
@job_option("training.scale_in", default=AUTO)
@job_option("transient.evictions", show_default="the paper's")
@job_option("transient.rules", "--by", default="2016")
@job_options("transient.markets", "deadline", "budget_usd")
@click.option("--own", default=1)
def verb(own: int, job: dict[str, Any]) -> None:
    assert isinstance(own, int)
    print(job)


def said(*words: str) -> str:
    done = CliRunner().invoke(verb, words, terminal_width=200, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def line_of(option: str) -> str:
    (line,) = (line for line in said("--help").splitlines() if line.strip().startswith(option))
    return " ".join(line.split())


def test_the_help_is_what_the_model_says() -> None:
    clocks = Training.model_fields["clocks"]
    assert line_of("--clocks") == f"--clocks INTEGER RANGE {clocks.title}. [x>=1]"
    assert line_of("--hours").endswith("[x>0]")
    assert line_of("--nan").startswith("--nan [fail|allow] Numbers that are not finite. In the model,")
    assert line_of("--nan").endswith("[default: fail]")
    assert line_of("--stage").startswith("--stage [auto|1|2|3] Stage. Nodes that serve.")
    assert line_of("--stage").endswith("auto: by the numbers of nodes. [default: auto]")
    assert line_of("--scale-in").startswith("--scale-in [auto|on|off]")


def test_an_empty_value_is_the_default_unless_the_verb_has_its_own() -> None:
    assert line_of("--budget").endswith("Default: no limit. [x>0]")
    assert line_of("--evictions").endswith("`proteus evictions fit`. [default: (the paper's)]")
    assert line_of("--by").endswith("2016: bids decide. [default: 2016]")


def test_the_values_lie_where_a_job_file_has_them() -> None:
    training = {"clocks": None, "hours": None, "nan": "fail", "max_partitions_per_node": None}
    job = {
        "job_id": None,
        "training": {**training, "stage": None, "scale_in": None},
        "transient": {"evictions": "", "rules": "2016", "markets": ()},
        "deadline": None,
        "budget_usd": None,
    }
    assert said() == f"{job}\n"
    job["training"] |= {"stage": 2, "scale_in": "on", "clocks": 3}
    job["transient"] |= {"markets": ("a/b", "c/d")}
    words = ("--stage", "2", "--scale-in", "on", "--clocks", "3", "--market", "a/b", "--market", "c/d")
    assert said(*words) == f"{job}\n"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--clocks", "0"], "0 is not in the range x>=1"),
        (["--hours", "0"], "0.0 is not in the range x>0"),
        (["--nan", "perhaps"], "'perhaps' is not one of 'fail', 'allow'"),
        (["--stage", "4"], "'4' is not one of 'auto', '1', '2', '3'"),
    ],
)
def test_a_value_that_is_none_is_refused(words: list[str], fault: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        said(*words)
    assert fault in refused.value.format_message()


@pytest.mark.parametrize(
    ("record", "within", "line"),
    [
        (
            {"training": {"max_partitions_per_node": 5000}},
            "",
            "--max-partitions-per-node: must be at most 4096 (is 5000); fix the option",
        ),
        (
            {"transient": {"markets": ["c4.large/us-east-1a"], "rules": "tomorrow"}},
            "",
            "--by: must be 'today' or '2016' (is 'tomorrow'); fix the option",
        ),
        (
            {"deadline": "90m", "training": {"hours": 1.0}},
            "",
            "--deadline: a job that ends by it counts its work in clocks; give --clocks; fix the option",
        ),
        ({"clocks": 0}, "training.", "--clocks: must be at least 1 (is 0); fix the option"),
        ({"shards": 0}, "training.", "shards: must be at least 1 (is 0); fix the option"),
        ({}, "training.", "a job needs an end: give --clocks, passes, --hours, or several of them; fix the option"),
    ],
)
def test_a_fault_of_the_job_names_the_option(record: dict[str, Any], within: str, line: str) -> None:
    job = {"job_id": "job", "training": {"clocks": 1}, "transient": {"markets": ["c4.large/us-east-1a"]}}
    with click.Context(verb), pytest.raises(InputError) as refused, faults_by_option(within):
        Training.model_validate(record) if within else JobSpec.model_validate(job | record)
    assert str(refused.value) == line
