"""Records of trials as .npz files: the parameters as JSON among the arrays; nothing in them is executed."""

import io
import json

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, read_whole, write_whole
from proteus_spot.infra.storage.blobs import BlobError, npz_arrays

_HEADER = "header"


def write_record(target: Source, record: RecordedTrials) -> None:
    """Write `record` atomically.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    header = np.frombuffer(json.dumps(record.header(), allow_nan=False).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **{_HEADER: header}, **record.arrays())
    write_whole(target, buffer.getvalue())


def read_record(source: Source) -> RecordedTrials:
    """Return the record that `write_record` wrote, identical to the last bit.

    Raises
    ------
    InputError
        If the file cannot be read, or is not a record of trials.
    """
    try:
        arrays = npz_arrays(read_whole(source), str(source))
        return RecordedTrials.from_parts(json.loads(arrays.pop(_HEADER).tobytes()), arrays)
    except BlobError:
        reason = "it is not an .npz file of plain arrays"
    except KeyError:
        reason = f"it has no {_HEADER!r}"
    except RecursionError:
        reason = "its header is nested too deeply"
    except (ValueError, OverflowError) as error:  # also what is not JSON
        reason = " ".join(str(error).split())[:200]
    raise InputError(
        f"{source}: is not a record of trials ({reason}); make one with benchmarks/papers/sweeps/record.py"
    )
