"""Options that are fields of a job: their types, defaults, choices and help are those of the model of a job.

The model takes long to load: it is loaded for the verbs that have such options, and not for `proteus --help`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

import click

from proteus_spot.infra.errors import InputError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Command = TypeVar("Command", bound=Callable[..., Any])

#: A choice that leaves a field empty, where a verb has it as the default.
AUTO = "auto"
#: {field: its option}, where that is not called as the field.
_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "job_id": "--job",
        "budget_usd": "--budget",
        "reliable.count": "--reliable",
        "training.app_params": "--param",
        "transient.markets": "--market",
    }
)
#: {field: what stands for its value in the help}, where that is not its type.
_METAVARS: Mapping[str, str] = MappingProxyType(
    {
        "job_id": "ID",
        "budget_usd": "USD",
        "deadline": "TIME",
        "queue": "NAME",
        "training.app_params": "NAME=VALUE",
        "training.code": "FILE",
        "training.data": "NAME|FILE",
        "training.label": "NAME",
        "training.until": "RULE",
        "transient.evictions": "FILE",
        "transient.flat_price": "USD",
        "transient.markets": "TYPE/ZONE",
        "transient.policy": "NAME",
    }
)


class _FieldOption(click.Option):
    """The option of a field of a job; `fill` adds what the model says of it."""

    def __init__(self, words: Sequence[str], *, field: str, **differs: Any) -> None:
        super().__init__(words, **differs)
        self.name = self.field = field
        self._words, self._differs = words, differs
        self._is_filled = False

    def fill(self) -> None:
        """Take from the model what the verb does not say."""
        if not self._is_filled:
            super().__init__(self._words, **_attributes(self.field, self._differs))
            self.name, self._is_filled = self.field, True

    def value(self, given: Any) -> Any:
        """Return the value of the field."""
        return None if given == AUTO and isinstance(self.type, click.Choice) else given


class JobCommand(click.Command):
    """A verb with options of a job; it gets their values as `job`, by field, as a job's file has them."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with what the model says of them."""
        for option in self.params:
            if isinstance(option, _FieldOption):
                option.fill()
        return super().get_params(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the verb."""
        assert self.callback is not None
        own, job = dict(ctx.params), dict[str, Any]()
        for option in self.params:
            if isinstance(option, _FieldOption):
                *outer, name = option.field.split(".")
                part = job
                for each in outer:
                    part = part.setdefault(each, {})
                part[name] = option.value(own.pop(option.field))
        return ctx.invoke(self.callback, **own, job=job)


def job_option(field: str, option: str = "", **differs: Any) -> Callable[[Command], Command]:
    """Return the option of a field of a job, as ``training.clocks``.

    Parameters
    ----------
    option : how it is written; by default as the field.
    differs : attributes of the option that this verb has otherwise than the model.
    """
    words = option or _OPTIONS.get(field, "--" + field.rpartition(".")[2].replace("_", "-"))
    return click.option(words, cls=_FieldOption, field=field, **{"metavar": _METAVARS.get(field), **differs})


def job_options(*fields: str) -> Callable[[Command], Command]:
    """Return the options of fields of a job that are as the model says, in this order."""

    def decorate(command: Command) -> Command:
        for field in reversed(fields):
            command = job_option(field)(command)
        return command

    return decorate


def application_options(command: Command) -> Command:
    """Add the options that say what is trained, and on what."""
    options = (
        job_option("training.code", show_default="module.py in this directory"),
        job_option(
            "training.app_params",
            help="Parameter of the application (repeat); VALUE is parsed as JSON if possible, else taken as text.",
        ),
        job_option(
            "training.data",
            default=None,
            show_default="digits; ratings for mf, topics for lda",
            help="Built-in set, or path or URL of a data file, packed or not.",
        ),
        job_options("training.label", "training.empty"),
    )
    for option in reversed(options):
        command = option(command)
    return command


def billing_options(command: Command, show_default: str | bool = True) -> Command:
    """Add the options that say how spot machines are charged, by default as in the years of the recorded prices."""
    charges = job_options("transient.reprice", "transient.flat_price")(command)
    return job_option("transient.billing", default="hourly-refund", show_default=show_default)(charges)


@contextmanager
def faults_by_option(within: str = "") -> Iterator[None]:
    """Refuse a job in one line, which names the option of its first fault.

    Parameters
    ----------
    within : prefix of the fields, where a part of a job alone is made: ``training.``.
    """
    from pydantic import ValidationError

    from proteus_spot.infra.validation import first_fault

    options = {
        option.field.removeprefix(within): option.opts[0]
        for option in click.get_current_context().command.params
        if isinstance(option, _FieldOption)
    }
    try:
        yield
    except ValidationError as error:
        words = first_fault(error, lambda place: options.get(place, place))
        if not error.errors()[0]["loc"]:  # the fault of several fields, whose names are in the words
            words = re.sub(r"[a-z_]+(\.[a-z_]+)*", lambda word: options.get(word[0], word[0]), words)
        raise InputError(f"{words}; fix the option") from None


def _attributes(field: str, differs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of the option of a field."""
    model = _model_field(field)
    kind = model.annotation
    if get_origin(kind) in (Union, UnionType):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) in (list, dict):
        return {"multiple": True, **differs}
    default = differs.get("default", None if model.is_required() else model.default)
    return {
        "type": _type(kind, model.metadata, [AUTO] if default == AUTO else []),
        "default": default,
        "show_default": default not in (None, ""),
        "help": _help(model, differs),
        **differs,
    }


def _model_field(path: str) -> "FieldInfo":
    from proteus_spot.studies.job_spec import JobSpec

    *outer, name = path.split(".")
    model: Any = JobSpec
    for part in outer:
        model = model.model_fields[part].annotation
    field: FieldInfo = model.model_fields[name]
    return field


def _type(kind: Any, limits: Sequence[Any], other: Sequence[str]) -> click.ParamType[Any]:
    """Return the type of an option; of the limits the least alone, as the model names the option for the others."""
    if kind is bool:
        return click.Choice([*other, "on", "off"])
    if get_origin(kind) is Literal:
        return click.Choice([*other, *get_args(kind)])
    if kind not in (int, float):
        return click.STRING
    least = {name: getattr(limit, name) for limit in limits for name in ("ge", "gt") if hasattr(limit, name)}
    bounded = click.IntRange if kind is int else click.FloatRange
    return bounded(min=next(iter(least.values()), None), min_open="gt" in least)


def _help(field: "FieldInfo", differs: Mapping[str, Any]) -> str:
    """Return what a field means, and what an empty one means where the verb has no default of its own."""
    from proteus_spot.studies.form_fields import meaning

    means, _, empty = meaning(field).removesuffix(".").partition(". Empty: ")
    if differs.get("default") == AUTO:
        return f"{means}. {AUTO}: {empty}."
    return (
        f"{means}. Default: {empty}."
        if empty and differs.keys().isdisjoint(("default", "show_default"))
        else f"{means}."
    )
