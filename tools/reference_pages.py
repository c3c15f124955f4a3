"""Write the pages that follow from the models: `python tools/reference_pages.py` (`make docs` runs it).

docs/api/ has every field of a job and of a sweep, and every verb and option, docs/settings.md every setting, and
docs/schemas/ the JSON schemas by which an editor checks the two files.
"""

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proteus_spot.flows.cli.main import GROUPS
from proteus_spot.infra.settings import Settings
from proteus_spot.studies.form_fields import meaning
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec

_HEAD = "| field | means | default |\n|---|---|---|\n"
_JOB = """# The job file

What `proteus submit JOB.yaml` and `proteus plan JOB.yaml` read; the form of the deployment `train/train` has the same
fields. This page is made from the model of a job (`make docs`).

```yaml
# yaml-language-server: $schema=job.schema.json
job_id: my-svm-1
training: {app: "my_svm:LinearSvm", code: my_svm.py, data: "s3://bucket/iris.npz", partitions: 8, clocks: 4000}
transient: {markets: [c4.xlarge/us-east-1a], max_vcpus: 16}
```

An editor checks the file while you write it, with the schema [job.schema.json](../schemas/job.schema.json): its path or
address stands in the first line.
"""
_SWEEP = """# The sweep file

What `proteus sweep local|run|submit SWEEP.yaml` read; the form of the deployment `sweep/sweep` has the same fields.
[Sweeps](../sweeps.md) explains them. This page is made from the model of a sweep (`make docs`); the schema for editors
is [sweep.schema.json](../schemas/sweep.schema.json).
"""
_SETTINGS = """# Settings

Environment variables of the worker, and of every command that reaches the state database. This page is made from the
model of the settings (`make docs`).

A leading `~` in a path is the home directory. Durations in `_S` are seconds of market time, which is real time unless
`PROTEUS_CLOCK` says otherwise. An invalid value is refused in one line that names it. Lists and mappings are JSON.

AWS's own variables (credentials, profile) are boto3's. A node gets `PROTEUS_CLOCK`, `PROTEUS_NODE_HOST`, `PROTEUS_TLS`
where it is `on`, its allocation's id and, on the reliable tier, `PROTEUS_EVENTS_URL`; job, blob URL, threads and poll
interval are on its command line.
"""
_COMMANDS = """# Commands

Every verb of `proteus` and its options. This page is made from the help texts (`make docs`).
[Reference](../reference.md) has exit codes and the keys of `--json`.
"""


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    return "none" if value in (None, "") else f"`{json.dumps(value, default=str)}`"


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    kinds = [field.annotation, *get_args(field.annotation)]
    found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return found[0] if found else None


def _tables(model: type[BaseModel], name: str = "") -> Iterator[str]:
    """Yield the table of a model, then those of the models in it."""
    rows, inner = [], []
    for key, field in model.model_fields.items():
        nested = _model_of(field)
        place = f"{name}.{key}" if name else key
        if nested is not None:
            inner.append((place, nested))
        default = f"[below](#{place.replace('.', '')})" if nested is not None else _default(field)
        rows.append(f"| `{key}` | {_text(meaning(field))} | {default} |\n")
    title = f"\n## `{name}`\n\n" if name else "\n"
    yield title + _text(inspect.getdoc(model) or "") + "\n\n" + _HEAD + "".join(rows)
    for place, nested in inner:
        yield from _tables(nested, place)


def _settings() -> str:
    defaults = {"database_url": "`state.db` in the user's data directory", "blob_url": "`blobs` next to it"}
    rows = [
        f"| `PROTEUS_{name.upper()}` | {_text(field.description or '')} | {defaults.get(name) or _default(field)} |\n"
        for name, field in sorted(Settings.model_fields.items())
    ]
    return f"{_SETTINGS}\n| variable | means | default |\n|---|---|---|\n{''.join(rows)}"


def _help(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; what is not to be wrapped there is a block of code here."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            lines = [line for line in paragraph.splitlines()[1:] if line not in ("Example:", "Examples:")]
            yield "\n".join(f"    {line.removeprefix('  ')}" for line in lines)
        else:
            yield " ".join(paragraph.split())


def _limits(text: str) -> str:
    """Write defaults and ranges so that they are neither a link nor HTML."""
    return text.replace("] [", "; ").replace("<", "&lt;")


def _command(command: click.Command, parent: click.Context, level: int) -> Iterator[str]:
    """Yield the section of a verb, then those of its own verbs."""
    context = click.Context(command, parent, command.name, max_content_width=1000)
    *params, _ = command.get_params(context)  # the last one is --help
    places = [param.make_metavar(context) for param in params if isinstance(param, click.Argument)]
    yield f"\n{'#' * level} `{' '.join([context.command_path, *places])}`\n\n"
    yield "\n\n".join(_help(command.help or "")) + "\n"
    records = [param.get_help_record(context) for param in params if isinstance(param, click.Option)]
    rows = [f"| `{_text(name)}` | {_limits(_text(means))} |\n" for name, means in filter(None, records)]
    if rows:
        yield "\n| option | is |\n|---|---|\n" + "".join(rows)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from _command(inner, context, level + 1)


def _commands() -> str:
    root = click.Context(click.Group("proteus"), info_name="proteus")
    return _COMMANDS + "".join(
        text for verbs in GROUPS.values() for verb in verbs for text in _command(verb, root, level=2)
    )


def _schema(model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    if "earlier" in schema["properties"]:  # a file may name results
        earlier = schema["properties"]["earlier"]
        earlier["items"] = {"anyOf": [earlier["items"], {"type": "string"}]}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def pages() -> Mapping[str, str]:
    """Return every page, by its path in docs/."""
    return {
        "api/job-file.md": _JOB + "".join(_tables(JobSpec)),
        "api/sweep-file.md": _SWEEP + "".join(_tables(SweepSpec)),
        "settings.md": _settings(),
        "api/commands.md": _commands(),
        "schemas/job.schema.json": _schema(JobSpec),
        "schemas/sweep.schema.json": _schema(SweepSpec),
    }


def main(docs: Path) -> None:
    """Write the pages."""
    for name, text in pages().items():
        path = docs / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "docs")
