"""The verb `proteus predict`."""

from typing import TYPE_CHECKING

import click

from proteus_spot.flows.cli.options import check_target, json_option
from proteus_spot.flows.terminal.output import write_json, write_text
from proteus_spot.infra.errors import InputError

if TYPE_CHECKING:
    from proteus_spot.studies.prediction.predictions import Predictions
    from proteus_spot.studies.prediction.topics import Topics


@click.command(short_help="Predict with a trained model.")
@click.argument("model", metavar="MODEL")
@click.argument("app", metavar="[APP]", required=False)
@click.option("--data", metavar="NAME|FILE", help="Built-in set, or path or URL of a data file.")
@click.option("--out", required=True, metavar="FILE", callback=check_target,
              help="CSV of the predictions, one per row; - is standard output.")  # fmt: skip
@click.option("--label", default="", metavar="NAME", help="Column of the labels. Default: as in the training data.")
@click.option("--no-labels", is_flag=True, help="Ignore the labels of the data, if any.")
@click.option(
    "--topics",
    type=click.IntRange(min=1),
    metavar="N",
    help="In place of --data, for lda: write the N most probable words of each topic.",
)
@click.option(
    "--vocabulary", metavar="FILE", help="For --topics: the words, one per line. Default: their indices, from 0."
)
@click.option("--code", metavar="FILE", help="File of your own application. Default: module.py in this directory.")
@json_option("the figures")
def predict(
    model: str,
    data: str | None,
    out: str,
    label: str,
    no_labels: bool,
    topics: int | None,
    vocabulary: str | None,
    app: str | None,
    code: str | None,
    json_target: str | None,
) -> None:
    """Predict with MODEL for each row of a data file.

    MODEL is the directory or URL of a model, as printed at the end of a training. APP is its application, which your
    own module:Class needs: code is never taken from where the model lies. The data have the form of the training data:

    \b
      mlr     examples, with or without a label: the class. With labels, also the accuracy
      bgd     the same; after training on a numeric target: the value. With targets, also the error
      kmeans  examples: the nearest cluster
      mf      user,item per line, with or without the rating: the rating. With ratings, also the error
      lda     documents: the likeliest topic, and the share of each

    \b
    Examples:
      proteus predict runs/iris/blobs/jobs/iris/model --data new.csv --out classes.csv
      proteus predict runs/films/blobs/jobs/films/model --data pairs.csv --out ratings.csv
      proteus predict runs/news/blobs/jobs/news/model --topics 10 --vocabulary vocab.txt --out -
      proteus predict s3://bucket/jobs/mine/model mine:App --code mine.py --data new.csv --out -
    """  # noqa: D301 - click reads the control character
    if out == json_target == "-":
        raise InputError("--json -: the predictions go to standard output; name a file for one of the two")
    if (data is None) == (topics is None):
        raise InputError("--data: name what to predict from, or give --topics N of a model of lda; one of the two")
    if topics is None and vocabulary is not None:
        raise InputError(f"--vocabulary {vocabulary}: names the words of topics; give --topics N with it")
    if topics is not None and (no_labels or label or code is not None):
        raise InputError("--topics: does not use --label, --no-labels and --code; leave them out")
    if label and no_labels:
        raise InputError(f"--label {label}: names the labels that --no-labels ignores; give one of the two")
    found = (
        _rows(model, str(data), app, code, not no_labels, label)
        if topics is None
        else _topics(model, topics, vocabulary, app)
    )
    table = found.as_csv()
    write_text(out, table.decode())
    write_json(json_target, found.figures())
    if "-" not in (out, json_target):
        click.echo(f"{found.summary()}: {out}")


def _rows(model: str, data: str, app: str | None, code: str | None, labels: bool, label: str) -> "Predictions":
    from proteus_spot.studies.prediction.predictions import predict as ask
    from proteus_spot.tasks.training.application_checks import application

    where = application("APP", app, code, ()).code if app else ""
    if code is not None and not app:
        raise InputError(f"--code {code}: name its module:Class as APP, after the model")
    found = ask(model, data, app or "", where, labels, label)
    for note in found.notes:
        click.echo(f"data: {note}", err=True)
    return found


def _topics(model: str, n: int, vocabulary: str | None, app: str | None) -> "Topics":
    from proteus_spot.studies.prediction.topics import topics as ask

    return ask(model, n, vocabulary, app or "")
