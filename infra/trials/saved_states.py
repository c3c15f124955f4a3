"""Saved states of a trial as files of a folder, without pickle: reading one executes nothing.

`state.json` says what kind of state it is:

- ``tree``: arrays by name, and dictionaries, lists and tuples of arrays, numbers and texts; arrays lie in arrays.npz
- ``bytes``, ``file``, ``folder``: as they are
- ``estimator``: a scikit-learn estimator, by skops
- ``lightgbm``, ``xgboost``: a booster, in its library's own format
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.storage.blobs import npz_arrays, write_npz_file
from proteus_spot.infra.trials.trial_errors import TrialError

#: File that every state has; it says of which kind the state is.
STATE = "state.json"
_ARRAYS, _CONTENT = "arrays.npz", "content"
#: Modules whose types an estimator may consist of; skops loads others only if it is asked to.
_TRUSTED = ("sklearn", "numpy", "scipy", "lightgbm", "xgboost")
_TRUSTED_TYPES = ("collections.OrderedDict", "collections.defaultdict")
_FIX = 'save its arrays by name, as in trial.save({"weights": weights}), or a file that it wrote, by its path'


def pack_state(model: Any, folder: Path) -> int:
    """Write a state as a new folder, which appears when it is complete; return its size in bytes.

    Raises
    ------
    TrialError
        If it cannot be saved without pickle, or the disk does not take it.
    """
    unfinished = folder.with_name(f"{folder.name}.new")
    remove_folder(unfinished)
    try:
        unfinished.mkdir(parents=True)
        about = _write(model, unfinished)
        (unfinished / STATE).write_text(json.dumps({"schema": 1, **about}))
        size = folder_size(unfinished)
        unfinished.rename(folder)
    except OSError as error:
        raise TrialError(f"save: the state cannot be written: {error.strerror or error}: {folder.parent}") from None
    finally:
        remove_folder(unfinished)
    return size


def unpack_state(folder: Path) -> Any:
    """Return the state of a folder, of the kind that was saved.

    Raises
    ------
    TrialError
        If the files are damaged, or of a newer version.
    """
    try:
        about = json.loads((folder / STATE).read_text())
        return _read(about, folder)
    except TrialError:
        raise
    except ProteusError as error:
        raise TrialError(str(error)) from None
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise TrialError(f"restore: the state in {folder} is damaged ({type(error).__name__}: {error})") from None


def folder_size(folder: Path) -> int:
    """Return the size of the files of a folder in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content; a missing one is not an error."""
    shutil.rmtree(folder, ignore_errors=True)


# -- writing --------------------------------------------------------------------------------------------------------


def _write(model: Any, folder: Path) -> dict[str, Any]:
    if isinstance(model, bytes | bytearray | memoryview):
        (folder / _CONTENT).write_bytes(model)
        return {"kind": "bytes"}
    if isinstance(model, str | os.PathLike):
        return _write_path(model, folder)
    if _is_type(model, "lightgbm", "Booster"):
        # A booster in training keeps its best iteration for prediction; going on needs all of them.
        (folder / _CONTENT).write_text(model.model_to_string(num_iteration=-1))
        return {"kind": "lightgbm"}
    if _is_type(model, "xgboost", "Booster"):
        (folder / _CONTENT).write_bytes(model.save_raw("ubj"))
        return {"kind": "xgboost"}
    if hasattr(model, "get_params") and hasattr(model, "fit"):
        return _write_estimator(model, folder)
    if isinstance(model, Mapping | list | tuple) or _is_array(model):
        arrays: list[np.ndarray] = []
        tree = _encode(model, "", arrays)
        write_npz_file(folder / _ARRAYS, {f"a{number}": array for number, array in enumerate(arrays)})
        return {"kind": "tree", "tree": tree}
    if hasattr(model, "state_dict"):
        raise TrialError(f"save: {_named(model)} cannot be saved as it is; save its state, by model.state_dict()")
    raise TrialError(f"save: {_named(model)} cannot be saved without pickle; {_FIX}")


def _write_path(model: str | os.PathLike[Any], folder: Path) -> dict[str, Any]:
    source = Path(os.fsdecode(model))
    target = folder / _CONTENT
    if source.is_dir():
        shutil.copytree(source, target)
        if odd := [path for path in target.rglob("*") if "\\" in path.name]:
            raise TrialError(f"save: {odd[0].name!r} has a backslash in its name; call the file otherwise")
        return {"kind": "folder", "name": source.resolve().name}
    if source.is_file():
        shutil.copyfile(source, target)
        return {"kind": "file", "name": source.resolve().name}
    hint = "; a text is saved as bytes, by text.encode()" if isinstance(model, str) else ""
    raise TrialError(f"save: there is no file or folder {str(source)[:200]!r}{hint}")


def _write_estimator(model: Any, folder: Path) -> dict[str, Any]:
    skops = _skops()
    try:
        skops.dump(model, folder / _CONTENT)
        odd = [name for name in skops.get_untrusted_types(file=folder / _CONTENT) if not _is_trusted(name)]
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever an attribute of the estimator raises
        raise TrialError(f"save: {_named(model)} cannot be saved by skops: {_line(error)}; {_FIX}") from None
    if odd:
        raise TrialError(f"save: {_named(model)} holds a {odd[0]}, which cannot be saved without pickle; {_FIX}")
    return {"kind": "estimator"}


def _encode(value: Any, where: str, arrays: list[np.ndarray]) -> dict[str, Any]:
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return {"value": value}
    if isinstance(value, Mapping):
        pairs = []
        for key, item in value.items():
            if not isinstance(key, str | int) or isinstance(key, bool | np.generic):
                raise TrialError(f"save: the name {key!r}{where} is {_named(key)}; name arrays by texts or numbers")
            pairs.append([key, _encode(item, f" under {key!r}{where}", arrays)])
        return {"dict": pairs}
    if type(value) in (list, tuple):
        return {
            type(value).__name__: [_encode(item, f" at {index}{where}", arrays) for index, item in enumerate(value)]
        }
    if isinstance(value, np.ma.MaskedArray) or not _is_array(value):
        raise TrialError(f"save: {_named(value)}{where} is neither an array nor a number; {_FIX}")
    return _encode_array(value, where, arrays)


def _encode_array(value: Any, where: str, arrays: list[np.ndarray]) -> dict[str, Any]:
    record: dict[str, Any] = {"array": len(arrays)}
    try:
        if _is_type(value, "torch", "Tensor"):
            value = value.detach().cpu()
            record["tensor"] = str(value.dtype).removeprefix("torch.")
            if record["tensor"] == "bfloat16":  # which NumPy does not know
                value = value.view(sys.modules["torch"].int16)
            value = value.numpy()
        if _is_type(value, "jax", "Array"):
            record["jax"] = True
        array = np.asarray(value)
    except Exception as error:  # noqa: BLE001 - whatever a library's array raises
        raise TrialError(f"save: {_named(value)}{where} is not a plain array: {_line(error)}") from None
    if array.dtype.hasobject or array.dtype.kind == "T":
        raise TrialError(f"save: the array{where} holds Python objects; give it a plain dtype, as float64")
    if array.dtype.kind == "V" and array.dtype.names is None and type(array.dtype) is not np.dtypes.VoidDType:
        record["dtype"] = array.dtype.name  # as bfloat16, which the .npz format does not know
        array = array.view(f"u{array.dtype.itemsize}")
    if isinstance(value, np.generic):
        record["scalar"] = True
    arrays.append(array)
    return record


# -- reading --------------------------------------------------------------------------------------------------------


def _read(about: Mapping[str, Any], folder: Path) -> Any:
    content = folder / _CONTENT
    match about["kind"]:
        case "tree":
            arrays = npz_arrays(folder / _ARRAYS, str(folder / _ARRAYS))
            return _decode(about["tree"], arrays)
        case "bytes":
            return content.read_bytes()
        case "file" | "folder":
            return _read_path(content, str(about["name"]))
        case "estimator":
            return _read_estimator(content)
        case "lightgbm":
            import lightgbm

            return lightgbm.Booster(model_str=content.read_text())
        case "xgboost":
            import xgboost

            booster = xgboost.Booster()
            booster.load_model(bytearray(content.read_bytes()))
            return booster
        case other:
            raise TrialError(f"restore: the state in {folder} is of kind {other!r}, which a newer version wrote")


def _read_path(content: Path, name: str) -> Path:
    """Return a copy, which the user may change: the saved state must stay as it is."""
    copies = content.parent.parent / "restored"
    remove_folder(copies)
    copies.mkdir()
    target = copies / Path(name).name
    if content.is_file():
        shutil.copyfile(content, target)
    elif content.is_dir():
        shutil.copytree(content, target)
    else:
        target.mkdir()  # a set of files has no empty folders
    return target


def _read_estimator(content: Path) -> Any:
    skops = _skops()
    try:
        trusted = [name for name in skops.get_untrusted_types(file=content) if _is_trusted(name)]
        return skops.load(content, trusted=trusted)
    except Exception as error:  # noqa: BLE001 - whatever skops raises for a damaged file, or an estimator of another version
        raise TrialError(f"restore: the estimator in {content.parent} cannot be loaded: {_line(error)}") from None


def _decode(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    if "value" in record:
        return record["value"]
    if "dict" in record:
        return {key: _decode(item, arrays) for key, item in record["dict"]}
    if "list" in record:
        return [_decode(item, arrays) for item in record["list"]]
    if "tuple" in record:
        return tuple(_decode(item, arrays) for item in record["tuple"])
    array = arrays[f"a{record['array']}"]
    if "dtype" in record:
        import ml_dtypes

        array = array.view(getattr(ml_dtypes, record["dtype"]))
    if "tensor" in record:
        import torch

        return torch.from_numpy(array).view(getattr(torch, record["tensor"]))
    if "jax" in record and "jax" in sys.modules:  # only a function that uses it has imported it
        return sys.modules["jax"].numpy.asarray(array)
    return array[()] if record.get("scalar") else array


# -- names ----------------------------------------------------------------------------------------------------------


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or (
        hasattr(value, "__array__") and hasattr(value, "shape") and hasattr(value, "dtype")
    )


def _is_type(value: Any, module: str, name: str) -> bool:
    """Return whether a value is of a library's class; a library that is not imported has no values."""
    owner = sys.modules.get(module)
    return owner is not None and isinstance(value, getattr(owner, name, ()))


def _is_trusted(name: str) -> bool:
    return name in _TRUSTED_TYPES or name.partition(".")[0] in _TRUSTED


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise TrialError(
            "save: an estimator of scikit-learn is saved by skops; add skops to the requirements"
        ) from None
    return skops.io


def _named(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"a value of type {name}"


def _line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
