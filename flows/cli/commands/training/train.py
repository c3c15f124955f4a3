"""The verb `proteus train`."""

from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.options import (
    code_options,
    given_options,
    json_option,
    nan_option,
    scale_in_option,
    table_options,
)
from proteus_spot.flows.terminal.interrupts import explain_interrupt, interruptible
from proteus_spot.flows.terminal.output import write_json


@click.command(short_help="Train with the engine alone, on local nodes.")
@click.argument("app", metavar="APP")
@code_options
@click.option(
    "--data", metavar="FILE", help="Built-in set, or a data file. Default: digits; ratings for mf, topics for lda."
)
@table_options
@click.option("--nodes", default="r=1,t=3", show_default=True, metavar="r=N,t=N", help="Reliable and transient nodes.")
@click.option(
    "--stage",
    type=click.Choice(["auto", "1", "2", "3"]),
    default="auto",
    show_default=True,
    help="Nodes that serve: 1: the reliable ones; 2 and 3: half of the transient ones; 3: only transient nodes work. "
    "auto: by the numbers of nodes.",
)
@click.option(
    "--stage-above",
    default="1,15",
    show_default=True,
    metavar="R2,R3",
    help="Transient nodes per reliable node above which stages 2 and 3 apply.",
)
@click.option("--threads", type=click.IntRange(1, 64), default=1, show_default=True, help="Concurrent tasks per node.")
@click.option("--staleness", type=click.IntRange(min=0), default=0, show_default=True, help="0 is bulk synchronous.")
@click.option(
    "--staleness-aware", is_flag=True, help="For mlr: divide a step by 1 + the number of clocks that it may lack."
)
@click.option(
    "--parallel",
    type=click.Choice(["data", "model"]),
    help="For lda and mf: data: each node works with all of the model; model: blocks of the model rotate. [data]",
)
@click.option(
    "--solver",
    type=click.Choice(["lbfgs", "gradient"]),
    help="For bgd: L-BFGS, or steepest descent. [lbfgs]",
)
@click.option(
    "--missing",
    type=click.Choice(["approximate", "ignore", "stall"]),
    help="For bgd: what stands for lost slices: an approximation, nothing; or a round waits for them. [approximate]",
)
@click.option(
    "--approximation",
    type=click.Choice(["kept", "redone"]),
    help="For bgd: approximate from sums that were kept, or from a second one. [kept]",
)
@click.option(
    "--clocks",
    type=click.IntRange(min=1),
    help="Stop after this many. Default: 50; unlimited with --passes or --seconds.",
)
@click.option(
    "--passes", type=click.IntRange(min=1), help="Stop after this many passes over the data, as APP counts them."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 1e9, min_open=True),
    help="Stop after this many seconds of training, if earlier.",
)
@click.option(
    "--until",
    default="",
    metavar="RULE",
    help="Stop when it has converged: loss=0.1 (the training loss of a clock is at most that), no-improvement=5 "
    "(none of 5 clocks has a lower loss than all before), or a bound on a figure of the held-out part: "
    "'accuracy>=0.95', 'rmse<=0.8'.",
)
@scale_in_option
@nan_option
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Slices of the data. [16; a net has as many as it has workers]",
)
@click.option(
    "--max-partitions-per-node",
    type=click.IntRange(min=1),
    metavar="N",
    help="Slices that a node works on at most; bgd approximates the others until there are more nodes.",
)
@click.option("--shards", type=click.IntRange(min=1), default=4, show_default=True, help="Slices of the model.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the order of the data and of the model.",
)
@click.option("--job", metavar="ID", help="Id of the job; the id of an unfinished job continues it. Default: a new id.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Directory of the state. Default: runs/JOB.")
@click.option("--checkpoint", metavar="URL", help="Store of data, checkpoints and model. Default: blobs in --dir.")
@click.option(
    "--checkpoint-every",
    type=click.FloatRange(0, 1e9, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds between checkpoints.",
)
@click.option(
    "--evaluate-every",
    type=click.IntRange(min=0),
    metavar="N",
    help="Clocks between evaluations on the held-out part, in the background; 0: only at the end. "
    "Default: a tenth of --clocks.",
)
@click.option("--events", type=click.Path(path_type=Path), help="CSV of node events to inject: at,action,node,seconds.")
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE", help="Write an HTML page of the training.")
@click.option(
    "--explain",
    multiple=True,
    metavar="NODE|shard:N",
    help="At the end, print the events of this node or shard, in order of time (repeat).",
)
@click.option("--dashboard", is_flag=True, help="Also start Dask's dashboard and print its address.")
@json_option()
def train(json_target: str | None, staleness_aware: bool, **options: Any) -> None:
    """Train APP (`mlr`, `mf`, `kmeans`, `lda`, `bgd`, or your own module:Class) with the engine alone.

    The nodes are processes of this machine. Ctrl-C or SIGTERM saves the state and ends all processes; the same command
    with the printed --job and --dir continues from there. A job that has ended shows its figures again.

    A line of --events is `at,action,node[,seconds]`: `clock:10,kill,t1`, `clock:20,notice,t2,5` (5 seconds of warning,
    then killed), `second:3.5,join,t9`, `clock:30,drain,t3`. Lines are executed from top to bottom.

    \b
    Examples:
      proteus train mlr --clocks 100 --nodes r=1,t=3
      proteus train mlr --data iris.csv --staleness 2 --json -
      proteus train lda --param k=10 --parallel model
      proteus train mlr --clocks 500 --until no-improvement=20
      proteus train kmeans:KMeans --data points.csv --param k=8 --job points
      proteus train mlr --events events.csv --checkpoint s3://bucket/proteus --job storm
      proteus train mlr --events events.csv --report storm.html --explain t1 --explain shard:0
    """  # noqa: D301 - click reads the control character
    with interruptible() as interrupts:
        from proteus_spot.flows.local_training import TrainOptions, train_locally
        from proteus_spot.studies.output_files import check_file_target

        if json_target not in (None, "-"):
            check_file_target("--json", Path(json_target))
        if options["report"] is not None:
            check_file_target("--report", options["report"])
        ways = {name: options.pop(name) for name in ("parallel", "solver", "missing", "approximation")}
        options["params"] += tuple(f"{name}={value}" for name, value in ways.items() if value is not None)
        if staleness_aware:
            options["params"] += ("staleness_aware=true",)
        given = given_options(click.get_current_context(), "job", "directory")
        with explain_interrupt("nothing was started"):
            figures = train_locally(TrainOptions(**options, given=given), interrupts, quiet=json_target == "-")
        write_json(json_target, figures)
