"""Eviction models as .npz files, with the model's header as JSON among the arrays; nothing in them is executed."""

import io
import json

import numpy as np

from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.predictors.predictor_model import KIND, PredictorModel
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, read_whole, write_whole
from proteus_spot.infra.storage.blobs import BlobError, npz_arrays

_HEADER = "header"


#: What a file may hold: survival curves, or the predictors of markets.
StoredModel = CurveModel | PredictorModel


def write_model(target: Source, model: StoredModel) -> None:
    """Write `model` atomically; the same model gives the same bytes.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    write_whole(target, model_bytes(model))


def model_bytes(model: StoredModel) -> bytes:
    """Return the file of a model."""
    header = np.frombuffer(json.dumps(model.header(), allow_nan=False).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **{_HEADER: header}, **model.arrays())
    return buffer.getvalue()


def read_model(source: Source) -> StoredModel:
    """Return the model that `write_model` wrote, identical to the last bit.

    Raises
    ------
    InputError
        If the file cannot be read, is not a model, or has another schema.
    """
    return model_from_bytes(read_whole(source), str(source))


def model_from_bytes(data: bytes, source: str) -> StoredModel:
    """Return the model of a file's content; `source` names it in a message.

    Raises
    ------
    InputError
        If it is not a model, or has another schema.
    """
    try:
        arrays = npz_arrays(data, source)
        header = json.loads(arrays.pop(_HEADER).tobytes())
        is_predictor = isinstance(header, dict) and header.get("kind") == KIND
        kind: type[CurveModel | PredictorModel] = PredictorModel if is_predictor else CurveModel
        model = kind.from_record(header, arrays)
        if model.markets:
            return model
        reason = "knows no market"
    except BlobError:
        reason = "is not an .npz file of plain arrays"
    except KeyError:
        reason = f"has no {_HEADER!r}"
    except RecursionError:
        reason = "has a header that is nested too deeply"
    except (ValueError, OverflowError) as error:  # also what is not JSON
        reason = " ".join(str(error).split())[:200]
    raise InputError(f"{source}: is not an eviction model ({reason}); make one with `proteus evictions fit`")
