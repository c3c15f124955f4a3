"""The verb `proteus train`."""

from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.job_options import (
    AUTO,
    JobCommand,
    application_options,
    faults_by_option,
    job_option,
    job_options,
)
from proteus_spot.flows.cli.options import check_target, command_again, json_option, new_job_id
from proteus_spot.flows.terminal.interrupts import explain_interrupt, interruptible
from proteus_spot.flows.terminal.output import write_json


@click.command(cls=JobCommand, short_help="Train with the engine alone, on local nodes.")
@click.argument("app", metavar="APP")
@application_options
@click.option("--nodes", default="r=1,t=3", show_default=True, metavar="r=N,t=N", help="Reliable and transient nodes.")
@job_option("training.stage", default=AUTO)
@click.option(
    "--stage-above",
    default="1,15",
    show_default=True,
    metavar="R2,R3",
    help="Transient nodes per reliable node above which stages 2 and 3 apply.",
)
@click.option("--threads", type=click.IntRange(1, 64), default=1, show_default=True, help="Concurrent tasks per node.")
@job_options("training.staleness")
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
@job_option("training.clocks", show_default="50; unlimited with --passes or --seconds")
@job_options("training.passes")
@job_option(
    "training.hours",
    "--seconds",
    type=click.FloatRange(0, 1e9, min_open=True),
    help="Stop after this many seconds of training.",
)
@job_options("training.until")
@job_option("training.scale_in", default=AUTO)
@job_options("training.nan")
@job_option("training.partitions", default=None, show_default="16; a net has as many as it has workers")
@job_options("training.max_partitions_per_node", "training.shards", "training.seed")
@job_option("job_id", help="Id of the job; the id of an unfinished job continues it. Default: a new id.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Directory of the state. Default: runs/JOB.")
@click.option("--checkpoint", metavar="URL", help="Store of data, checkpoints and model. Default: blobs in --dir.")
@job_option(
    "training.checkpoint_minutes",
    "--checkpoint-every",
    type=click.FloatRange(0, 1e9, min_open=True),
    default=30.0,
    help="Seconds between checkpoints.",
)
@job_option(
    "training.evaluate_every",
    type=click.IntRange(min=0),
    show_default="a tenth of --clocks",
    help="Clocks between evaluations on what is held out, in the background; 0: only at the end.",
)
@click.option("--events", type=click.Path(path_type=Path), help="CSV of node events to inject: at,action,node,seconds.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=check_target,
    help="Write an HTML page of the training.",
)
@click.option(
    "--explain",
    multiple=True,
    metavar="NODE|shard:N",
    help="At the end, print the events of this node or shard, in order of time (repeat).",
)
@click.option("--dashboard", is_flag=True, help="Also start Dask's dashboard and print its address.")
@json_option()
def train(
    app: str,
    nodes: str,
    stage_above: str,
    threads: int,
    staleness_aware: bool,
    parallel: str | None,
    solver: str | None,
    missing: str | None,
    approximation: str | None,
    directory: Path | None,
    json_target: str | None,
    job: dict[str, Any],
    **own: Any,
) -> None:
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
        from proteus_spot.flows.local_training import TrainRun, asked_tiers, given_training, train_locally
        from proteus_spot.tasks.local_nodes.node_training import LocalJob

        ways = {"parallel": parallel, "solver": solver, "missing": missing, "approximation": approximation}
        job["training"]["app_params"] += tuple(f"{name}={value}" for name, value in ways.items() if value is not None)
        if staleness_aware:
            job["training"]["app_params"] += ("staleness_aware=true",)
        job_id = job["job_id"] or new_job_id("train")
        directory = (directory or Path("runs") / job_id).absolute()
        again = command_again("train", app, "--job", job_id, directory=directory)
        with faults_by_option("training."):
            training = given_training(app, job["training"], stage_above)
        local_job = LocalJob(job_id, training, asked_tiers(nodes), threads)
        with explain_interrupt("nothing was started"):
            run = TrainRun(again, directory, **own)
            figures = train_locally(local_job, run, interrupts, quiet=json_target == "-")
        write_json(json_target, figures)
