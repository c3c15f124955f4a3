"""The verb `proteus predict`."""

import sys
from pathlib import Path

import click

from flows.output import write_json
from tasks.failures import InputError


@click.command(short_help="What a trained model says of new examples.")
@click.argument("model", metavar="MODEL")
@click.option("--data", required=True, metavar="NAME|FILE", help="Built-in set, or path or URL of a data file.")
@click.option("--out", required=True, metavar="FILE", help="CSV of the predictions, a row each; - is standard output.")
@click.option("--app", metavar="NAME", help="Application that MODEL must be of; needed for your own module:Class.")
@click.option("--code", metavar="FILE", help="The file that your own was trained by. Default: module.py here.")
@click.option("--json", "json_target", metavar="FILE", help="Write the figures for machines; - is standard output.")
def predict(model: str, data: str, out: str, app: str | None, code: str | None, json_target: str | None) -> None:
    """Tell what MODEL says of each row of a data file: the class, for mlr; the nearest cluster, for kmeans.

    MODEL is the directory or URL of a model, as a training names it at its end. The data have the form of those that it
    was trained on, the column of the label too; where those labels are known, the share that is told rightly is shown.

    \b
    Examples:
      proteus predict runs/iris/blobs/jobs/iris/model --data new.csv --out classes.csv
      proteus predict s3://bucket/jobs/mine/model --app mine:App --code mine.py --data new.csv --out -
    """  # noqa: D301 - click reads the control character
    if out == json_target == "-":
        raise InputError("--json -: the predictions go to standard output; name a file for one of the two")
    from flows.training_options import application
    from tasks.local_checks import check_file_target
    from tasks.predict import predict as ask

    for option, target in (("--out", out), ("--json", json_target)):
        if target not in (None, "-"):
            check_file_target(option, Path(str(target)))
    where = application("--app", app, code, ()).code if app else ""
    if code is not None and not app:
        raise InputError(f"--code {code}: say by --app which module:Class it holds")
    found = ask(model, data, app or "", where)
    table = found.as_csv()
    if out == "-":
        sys.stdout.write(table.decode())
    else:
        Path(out).write_bytes(table)
    write_json(json_target, found.figures())
    if "-" not in (out, json_target):
        rightly = "" if found.accuracy is None else f", {found.accuracy:.4f} of them as their labels say"
        click.echo(f"{len(found.values)} rows{rightly}: {out}")
