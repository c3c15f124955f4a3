"""Code, packages and data of a trial reach its machine once, or one line says why not."""

from pathlib import Path

import pytest

from proteus_spot.infra.applications.code_shipping import ship_code
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs, DamagedSet
from proteus_spot.infra.storage.trial_paths import SweepPaths
from proteus_spot.infra.trials.shipping import fetch_inputs, ship_data, ship_requirements
from proteus_spot.infra.trials.trial_errors import TrialError
from tests.support.wheels import write_wheel

PATHS = SweepPaths("digits")


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(f"file://{tmp_path}/blobs")


def test_a_wheel_its_packages_and_its_data(blobs: Blobs, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, {"mine/__init__.py": "def train(trial): ...", "mine/words.txt": "words"})
    needed = write_wheel(tmp_path, {"helper_of_mine.py": "FACTOR = 3"}, name="helper")
    ship_code(blobs, "digits", "mine:train", str(wheel))
    ship_requirements(blobs, "digits", f"{needed}\n".encode())
    (tmp_path / "rows.csv").write_bytes(b"1,2\n")
    ship_data(blobs, "digits", "rows.csv", tmp_path / "rows.csv")
    machine = tmp_path / "machine"
    inputs = fetch_inputs(blobs, "digits", "mine:train", machine)
    assert inputs.code is not None
    assert (inputs.code / "mine" / "words.txt").read_text() == "words"
    assert inputs.packages is not None
    assert (inputs.packages / "helper_of_mine.py").read_text() == "FACTOR = 3"
    assert inputs.data is not None
    assert (inputs.data.name, inputs.data.read_bytes()) == ("rows.csv", b"1,2\n")
    for prefix in (PATHS.code, PATHS.data):
        blobs.remove(f"{prefix}/{next(iter(blobs.manifest(prefix).files))}")  # type: ignore[union-attr]
    assert fetch_inputs(blobs, "digits", "mine:train", machine) == inputs, "they are fetched once"
    with pytest.raises(DamagedSet):
        fetch_inputs(blobs, "digits", "mine:train", tmp_path / "other")


def test_a_trial_without_anything(blobs: Blobs, tmp_path: Path) -> None:
    inputs = fetch_inputs(blobs, "digits", "installed:train", tmp_path / "machine")
    assert (inputs.code, inputs.packages, inputs.data) == (None, None, None)


def test_packages_that_cannot_be_installed_are_one_line(blobs: Blobs, tmp_path: Path) -> None:
    ship_requirements(blobs, "digits", f"{tmp_path}/missing-1.0-py3-none-any.whl\n".encode())
    with pytest.raises(TrialError, match=r"requirements: cannot be installed on the machine: .*missing-1\.0") as caught:
        fetch_inputs(blobs, "digits", "mine:train", tmp_path / "machine")
    assert "\n" not in str(caught.value)


def test_a_sweep_goes_on_with_what_it_began_with(blobs: Blobs, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"1,2\n")
    for source in (data, data.as_uri()):
        ship_requirements(blobs, "digits", b"one\n")
        ship_data(blobs, "digits", "rows.csv", source)
    with pytest.raises(InputError, match="requirements of sweep digits: it began with others"):
        ship_requirements(blobs, "digits", b"two\n")
    for name, content in (("rows.csv", b"3,4\n"), ("rows.csv", b"1\n"), ("other.csv", b"1,2\n")):
        data.write_bytes(content)
        with pytest.raises(InputError, match="data of sweep digits: it began with another file"):
            ship_data(blobs, "digits", name, data)
