"""Save trained models with all that is needed to use them, and load them by their URL.

A model is a set of blobs: `model.npz` holds the application's tables; a net has `model.safetensors` in place of it, and
the file of the user's code beside it. If rows stand for users and items,
`names.npz` holds the names. The manifest holds the job's result and, under `model`, the application with its
parameters, the labels of the classes, and the digest of a user's code. Code is never loaded from the model's URL: the
caller has to name an application that is not built in, and to supply its file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from proteus_spot.infra.applications.code_files import read_code
from proteus_spot.infra.applications.code_shipping import place_code
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import BlobError, Blobs, Manifest, npz_arrays, npz_bytes, open_blobs
from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths
from proteus_spot.infra.urls import file_url
from proteus_spot.psengine.apps.base import Model, SavesFiles
from proteus_spot.psengine.apps.registry import BUILT_IN, kind_for, resolve
from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.shell.callbacks import BestModel
from proteus_spot.psengine.tables.sharding import Arrays

MODEL = "model.npz"
#: File of a net's model.
NET_MODEL = "model.safetensors"
NAMES = "names.npz"
#: Arrays of `names.npz` and of the held-out part: the user and the item of the source by number.
_NAMES = ("user_names", "item_names")
_ABOUT = "model"
#: Where a run, and a blob store, keep the models of their jobs.
_MODELS_BELOW = ("blobs/jobs/*/model/manifest.json", "jobs/*/model/manifest.json")


@dataclass(frozen=True, slots=True)
class ModelAbout:
    """The description of a model, from its manifest.

    Attributes
    ----------
    url : URL of the model.
    app, app_params : the application, with the sizes of its training data.
    labels : the source's label of each class; empty without classes, or if the labels are unknown.
    code_sha256 : digest of the application's file; empty if it was an installed module.
    first_index : 0 or 1, index of the first feature in the training data; None if their form defines it.
    inputs : names of the inputs; empty if the training data had none.
    label_name : name of the column of the labels; None without one.
    fill : of each input the value that stands for none in new data; empty: each must have one.
    kind : kind of the data (`infra.datasets.kinds`).
    names : `user_names` and `item_names`, each (n,), integers or strings in the order of the tables' rows; empty if the
        model is not of ratings.
    """

    url: str
    app: str
    app_params: Mapping[str, Any]
    labels: tuple[int | str, ...]
    code_sha256: str
    first_index: int | None = None
    inputs: tuple[str, ...] = ()
    label_name: str | None = None
    fill: tuple[float, ...] = ()
    kind: str = "examples"
    names: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def save_model(blobs: Blobs, config: JobConfig, arrays: Arrays, result: Mapping[str, Any]) -> None:
    """Write the tables and the result of a job that has ended; `BlobError` if that fails."""
    of_data = _of_data(config.data_url)
    about = {
        "job": config.job_id,
        "app": config.app,
        "app_params": dict(config.app_params),
        "code_sha256": config.code_sha256,
        **of_data,
    }
    is_net = of_data["kind"] == "arrays"
    files = _net_files(blobs, config, arrays) if is_net else {MODEL: npz_bytes(arrays), **_names(config.data_url)}
    blobs.write_set(JobPaths(config.job_id).model, files, {**result, _ABOUT: about})


def _net_files(blobs: Blobs, config: JobConfig, arrays: Arrays) -> Mapping[str, bytes]:
    app = resolve(config.app, config.app_params)
    assert isinstance(app, SavesFiles), "its data are those of nets alone"
    prefix = JobPaths(config.job_id).code
    code = blobs.manifest(prefix)
    shipped = {} if code is None else {name: blobs.read_checked(prefix, name, code) for name in code.files}
    return {**app.model_files(arrays), **shipped}


def keep_best(blobs: Blobs, config: JobConfig, best: BestModel) -> None:
    """Store the best model so far, and remove the ones before; `BlobError` if that fails."""
    prefix = JobPaths(config.job_id).best
    about = {"clock": best.clock, "figures": best.figures}
    blobs.write_set(f"{prefix}/{best.clock:09d}", {MODEL: npz_bytes(best.arrays)}, about)
    for before in _kept(blobs, prefix):
        if before != f"{best.clock:09d}":
            blobs.remove_set(f"{prefix}/{before}")


def find_best(blobs: Blobs, config: JobConfig) -> BestModel | None:
    """Return the best model that was stored; None: there is none."""
    prefix = JobPaths(config.job_id).best
    for name in reversed(_kept(blobs, prefix)):
        manifest = blobs.manifest(f"{prefix}/{name}")
        if manifest is not None:
            data = blobs.read_checked(f"{prefix}/{name}", MODEL, manifest)
            arrays = npz_arrays(data, blobs.url_of(f"{prefix}/{name}/{MODEL}"))
            return BestModel(int(manifest.about["clock"]), dict(manifest.about["figures"]), arrays)
    return None


def _kept(blobs: Blobs, prefix: str) -> list[str]:
    return sorted({name.removeprefix(f"{prefix}/").split("/")[0] for name in blobs.list(prefix)})


def find_result(blobs: Blobs, config: JobConfig) -> dict[str, Any] | None:
    """Return the result that a job saved with its model; None if there is none yet."""
    manifest = blobs.manifest(JobPaths(config.job_id).model)
    if manifest is None:
        return None
    return {name: value for name, value in manifest.about.items() if name != _ABOUT}


def model_url(blobs: Blobs, job_id: str) -> str:
    """Return the URL of the file of a job's saved model."""
    prefix = JobPaths(job_id).model
    manifest = blobs.manifest(prefix)
    name = NET_MODEL if manifest is not None and NET_MODEL in manifest.files else MODEL
    return blobs.url_of(f"{prefix}/{name}")


def load_model(
    where: str, app: str = "", code: str = "", directory: Path | None = None
) -> tuple[Model, Arrays, ModelAbout]:
    """Return the application of a model, its tables, and its description.

    Parameters
    ----------
    where : directory or fsspec URL of the model, as ``…/jobs/JOB/model``, or of the `model.npz` in it; also the
        directory of a run, or of a blob store, that has one model.
    app : the expected application; required for one that is not built in, as loading runs its code.
    code : path or URL of the file of a user's application; empty if its module is installed.
    directory : receives that code, which is then imported.

    Raises
    ------
    InputError
        One line: no model, a damaged one, one of another application, tables of other sizes than the application's, or
        other code than the model was trained with.
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
            _place_user_code(about, code, directory)
        application = resolve(about.app, about.app_params)
        arrays = _arrays(blobs, prefix, manifest, application, url, about.app)
        if NAMES in manifest.files:
            names = npz_arrays(blobs.read_checked(prefix, NAMES, manifest), f"{url}/{NAMES}")
            about = replace(about, names=names)
    except BlobError as error:
        raise InputError(str(error)) from None
    except JobError as error:
        raise InputError(f"{where}: {error}") from None
    return application, arrays, about


def _arrays(blobs: Blobs, prefix: str, manifest: Manifest, application: Model, url: str, app: str) -> Arrays:
    if isinstance(application, SavesFiles) and NET_MODEL in manifest.files:  # without what only training needs
        return application.tables_of_files({NET_MODEL: blobs.read_checked(prefix, NET_MODEL, manifest)})
    arrays = dict(npz_arrays(blobs.read_checked(prefix, MODEL, manifest), f"{url}/{MODEL}"))
    _check_tables(url, app, application, arrays)
    return arrays


def _about(url: str, manifest: Manifest) -> ModelAbout:
    record = manifest.about.get(_ABOUT)
    if MODEL not in manifest.files and NET_MODEL not in manifest.files:
        raise InputError(f"{url}: is a set of other files and no model; name what the training named")
    if not isinstance(record, Mapping):
        raise InputError(f"{url}: does not say what it is a model of, so that it cannot be used; train it again")
    try:
        params = dict(record["app_params"])
        labels = tuple(record["labels"])
        first = record["first_index"]
        if first not in (None, 0, 1):
            raise ValueError(f"first_index {first!r}")
        inputs, fill = tuple(record["inputs"]), tuple(map(float, record["fill"]))
        code, name = str(record["code_sha256"]), record["label_name"]
        app = str(record["app"])
        kind = str(record["kind"] or kind_for(app))
        return ModelAbout(url, app, params, labels, code, first, inputs, name, fill, kind)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{url}: its manifest is damaged ({error!r}); train it again") from None


def _check_app(about: ModelAbout, app: str) -> None:
    """Refuse a model of another application than `app`, and one of a user's application if `app` is empty."""
    if app and app != about.app:
        raise InputError(f"{about.url}: is a model of app {about.app}, not of {app}; name another model")
    if not app and about.app not in BUILT_IN:
        raise InputError(
            f"{about.url}: is a model of app {about.app}; to run its code name {about.app} after the model"
        )


def _place_user_code(about: ModelAbout, code: str, directory: Path | None) -> None:
    """Make a user's code importable if its digest is that of the model."""
    if not about.code_sha256:
        if code:
            raise InputError(f"code {code}: {about.url} was trained by an installed module; leave the code out")
        return
    if not code or directory is None:
        raise InputError(f"{about.url}: app {about.app} was shipped with the job; give its file by --code")
    file = read_code(about.app, code)
    if file.sha256 != about.code_sha256:
        raise InputError(
            f"code {code}: is {file.sha256[:12]}, and {about.url} was trained by {about.code_sha256[:12]}; "
            "give that file"
        )
    place_code(file, directory, code)


def _check_tables(url: str, app: str, application: Model, arrays: Arrays) -> None:
    tables = {table.name: table for table in application.tables()}
    if sorted(tables) != sorted(arrays):
        raise InputError(
            f"{url}: holds tables {sorted(arrays)}, and app {app} has {sorted(tables)}; name its own model"
        )
    for name, table in tables.items():
        found, wanted = arrays[name], (table.n_rows, table.n_cols)
        if found.shape != wanted or found.dtype != table.dtype:
            raise InputError(
                f"{url}: table {name} is {found.dtype} {found.shape}, and app {app} has {table.dtype} {wanted}; "
                "train it again"
            )


def _of_data(data_url: str) -> dict[str, Any]:
    """Return the facts on a job's data that are needed to use the model; see `ModelAbout`."""
    blobs, prefix = _set_at(data_url)
    manifest = blobs.manifest(prefix)
    about = {} if manifest is None else manifest.about
    return {
        "labels": list(about.get("labels") or ()),
        "first_index": about.get("first_index"),
        "inputs": list(about.get("inputs") or ()),
        "label_name": about.get("label_name"),
        "fill": list(about.get("fill") or ()),
        "kind": about.get("kind"),
    }


def _names(data_url: str) -> dict[str, bytes]:
    """Return the file of the names of users and items if the data are ratings; the model may outlive the data."""
    blobs, prefix = _set_at(data_url)
    manifest = blobs.manifest(prefix)
    if manifest is None or manifest.about.get("kind") != "ratings":
        return {}
    held = blobs.read_npz(f"{prefix}/{HELD_OUT}")
    return {NAMES: npz_bytes({name: held[name] for name in _NAMES})}


def _url(where: str) -> str:
    url = where if "://" in where else file_url(_only_model(Path(where)))
    return url.rstrip("/").removesuffix(f"/{MODEL}").removesuffix(f"/{NET_MODEL}").rstrip("/")


def _only_model(directory: Path) -> Path:
    """Return the directory of the one model below the directory of a run or a blob store, else `directory` itself."""
    found = [path for pattern in _MODELS_BELOW for path in sorted(directory.glob(pattern))]
    if len(found) > 1:
        names = ", ".join(str(path.parent) for path in found[:3])
        raise InputError(f"{directory}: has {len(found)} models, such as {names}; name one")
    return found[0].parent if found else directory


def _set_at(url: str) -> tuple[Blobs, str]:
    """Return store and name of the set at `url`, with the other settings of this process (a bucket's region)."""
    parent, _, name = url.rstrip("/").rpartition("/")
    return open_blobs(load_settings().model_copy(update={"blob_url": parent})), name
