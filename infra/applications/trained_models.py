"""Trained models: written with what one must know to use them, and loaded again by whoever has the URL.

A model is a set: `model.npz` has the application's tables, and where rows of those stand for users and items, `names.npz`
has their names. The manifest holds the job's result and, under `model`, the application with its parameters, the labels
of the classes, and the digest of the code where that is a user's. Code is never taken from where the model lies: an
application that is not built in has to be named by whoever loads it, and its file handed in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from infra.applications.code_files import read_code
from infra.applications.code_shipping import place_code
from infra.errors import InputError
from infra.settings import load_settings
from infra.storage.blobs import BlobError, Blobs, Manifest, npz_arrays, npz_bytes, open_blobs
from infra.storage.job_paths import HELD_OUT, JobPaths
from infra.urls import file_url
from psengine.apps.base import App
from psengine.apps.registry import BUILT_IN, resolve
from psengine.config import JobConfig, JobError
from psengine.tables.sharding import Arrays

MODEL = "model.npz"
NAMES = "names.npz"
#: Arrays of the held-out part that say which user and item of the source has which number, and of `names.npz`.
_NAMES = ("user_names", "item_names")
_ABOUT = "model"


@dataclass(frozen=True, slots=True)
class ModelAbout:
    """What a model's manifest says of it.

    Attributes
    ----------
    url : where it lies.
    app, app_params : the application, with the sizes of what it was trained on.
    labels : the source's label of each class; empty where there are no classes, or none are known.
    code_sha256 : digest of the file that held the application; empty where it was installed.
    first_index : 0 or 1, from where the training data counted their features; None where their form left no doubt.
    names : `user_names` and `item_names`, each (n,), whole numbers or texts in the order of the tables' rows; empty where
        the model is not of ratings, or an older version wrote it.
    """

    url: str
    app: str
    app_params: Mapping[str, Any]
    labels: tuple[int | str, ...]
    code_sha256: str
    first_index: int | None = None
    names: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def save_model(blobs: Blobs, config: JobConfig, arrays: Arrays, result: Mapping[str, Any]) -> None:
    """Write the tables of a job that has ended, and with them its result; `BlobError` where that fails."""
    about = {
        "job": config.job_id,
        "app": config.app,
        "app_params": dict(config.app_params),
        "code_sha256": config.code_sha256,
        **_of_data(config.data_url),
    }
    files = {MODEL: npz_bytes(arrays), **_names(config.data_url)}
    blobs.write_set(JobPaths(config.job_id).model, files, {**result, _ABOUT: about})


def find_result(blobs: Blobs, config: JobConfig) -> dict[str, Any] | None:
    """Return the result that a job saved with its model, None where there is none yet."""
    manifest = blobs.manifest(JobPaths(config.job_id).model)
    if manifest is None:
        return None
    return {name: value for name, value in manifest.about.items() if name != _ABOUT}


def load_model(
    where: str, app: str = "", code: str = "", directory: Path | None = None
) -> tuple[App, Arrays, ModelAbout]:
    """Return the application of a model, its tables, and what is known of it.

    Parameters
    ----------
    where : directory or fsspec URL of the model, as ``…/jobs/JOB/model``, or of the `model.npz` in it.
    app : the application that is expected; needed for one that is not built in: loading runs its code.
    code : path or URL of the file that holds a user's application; empty where its module is installed.
    directory : takes that code, which this process imports then.

    Raises
    ------
    InputError
        One line: no model, a damaged one, one of another application, one whose tables have other sizes than the
        application's, or code that is not what the model was trained with.
    """
    url = _url(where)
    blobs, prefix = _set_at(url)
    try:
        manifest = blobs.manifest(prefix)
        if manifest is None:
            raise InputError(f"{where}: there is no model, as no manifest.json is there; name what the training named")
        about = _about(url, manifest)
        _check_app(about, app)
        if about.app not in BUILT_IN:
            _bring(about, code, directory)
        arrays: Arrays = dict(npz_arrays(blobs.read_checked(prefix, MODEL, manifest), f"{url}/{MODEL}"))
        if NAMES in manifest.files:
            names = npz_arrays(blobs.read_checked(prefix, NAMES, manifest), f"{url}/{NAMES}")
            about = replace(about, names=names)
        made = resolve(about.app, about.app_params)
    except BlobError as error:
        raise InputError(str(error)) from None
    except JobError as error:
        raise InputError(f"{where}: {error}") from None
    _check_tables(url, about.app, made, arrays)
    return made, arrays, about


def _about(url: str, manifest: Manifest) -> ModelAbout:
    said = manifest.about.get(_ABOUT)
    if MODEL not in manifest.files:
        raise InputError(f"{url}: is a set of other files and no model; name what the training named")
    if not isinstance(said, Mapping):
        raise InputError(f"{url}: does not say what it is a model of, as an older version wrote it; train it again")
    try:
        params, labels = dict(said["app_params"]), tuple(said["labels"])
        first = said.get("first_index")  # not there in an older model
        if first not in (None, 0, 1):
            raise ValueError(f"first_index {first!r}")
        return ModelAbout(url, str(said["app"]), params, labels, str(said["code_sha256"]), first)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{url}: its manifest is damaged ({error!r}); train it again") from None


def _check_app(about: ModelAbout, app: str) -> None:
    """Refuse a model of another application than the one named, and one of a user's that nobody has named."""
    if app and app != about.app:
        raise InputError(f"{about.url}: is a model of app {about.app}, not of {app}; name another model")
    if not app and about.app not in BUILT_IN:
        raise InputError(f"{about.url}: is a model of app {about.app}; to run that code give --app {about.app}")


def _bring(about: ModelAbout, code: str, directory: Path | None) -> None:
    """Make a user's code ready for import, where it is the model's."""
    if not about.code_sha256:
        if code:
            raise InputError(f"code {code}: {about.url} was trained by an installed module; leave the code out")
        return
    if not code or directory is None:
        raise InputError(f"{about.url}: app {about.app} travelled with the job; give its file by --code")
    file = read_code(about.app, code)
    if file.sha256 != about.code_sha256:
        raise InputError(
            f"code {code}: is {file.sha256[:12]}, and {about.url} was trained by {about.code_sha256[:12]}; give that file"
        )
    place_code(file, directory, code)


def _check_tables(url: str, app: str, made: App, arrays: Arrays) -> None:
    tables = {table.name: table for table in made.tables()}
    if sorted(tables) != sorted(arrays):
        raise InputError(
            f"{url}: holds tables {sorted(arrays)}, and app {app} has {sorted(tables)}; name its own model"
        )
    for name, table in tables.items():
        found, wanted = arrays[name], (table.n_rows, table.n_cols)
        if found.shape != wanted or found.dtype != table.dtype:
            raise InputError(
                f"{url}: table {name} is {found.dtype} {found.shape}, and app {app} has {table.dtype} {wanted}; train it "
                "again"
            )


def _of_data(data_url: str) -> dict[str, Any]:
    """Return what a job's data say that whoever uses the model has to know: labels of classes, the first index."""
    blobs, prefix = _set_at(data_url)
    manifest = blobs.manifest(prefix)
    about = {} if manifest is None else manifest.about
    return {"labels": list(about.get("labels") or ()), "first_index": about.get("first_index")}


def _names(data_url: str) -> dict[str, bytes]:
    """Return the file of the names of users and items, where a job's data are ratings: the data may go, the model stays."""
    blobs, prefix = _set_at(data_url)
    manifest = blobs.manifest(prefix)
    if manifest is None or manifest.about.get("kind") != "ratings":
        return {}
    held = blobs.read_npz(f"{prefix}/{HELD_OUT}")
    return {NAMES: npz_bytes({name: held[name] for name in _NAMES})}


def _url(where: str) -> str:
    url = where if "://" in where else file_url(Path(where))
    return url.rstrip("/").removesuffix(f"/{MODEL}").rstrip("/")


def _set_at(url: str) -> tuple[Blobs, str]:
    """Return the store and the name of the set at `url`, reached as the settings say (a bucket's region)."""
    parent, _, name = url.rstrip("/").rpartition("/")
    return open_blobs(load_settings().model_copy(update={"blob_url": parent})), name
