"""States are saved and read back unchanged, kind by kind, and nothing is ever pickled."""

import json
import pickle
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from proteus_spot.infra.trials.saved_states import pack_state, unpack_state
from proteus_spot.infra.trials.trial_errors import TrialError

_DTYPES = (
    arrays_of.boolean_dtypes()
    | arrays_of.integer_dtypes(endianness="?")
    | arrays_of.floating_dtypes(endianness="?")
    | arrays_of.complex_number_dtypes()
    | arrays_of.datetime64_dtypes()
    | arrays_of.unicode_string_dtypes(max_len=5)
)
_ARRAYS = _DTYPES.flatmap(lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, min_side=0)))
_LEAVES = _ARRAYS | some.none() | some.booleans() | some.integers() | some.floats() | some.text()
_TREES = some.recursive(
    _LEAVES,
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.lists(inner, max_size=3).map(tuple)
        | some.dictionaries(some.text() | some.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


def _assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            _assert_same(one[name], other[name])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            _assert_same(left, right)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    else:
        assert repr(one) == repr(other)


def _round_trip(model: Any, tmp_path: Path) -> Any:
    folder = tmp_path / "state"
    size = pack_state(model, folder)
    assert size == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert not list(tmp_path.glob("*.new"))
    return unpack_state(folder)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(model=some.dictionaries(some.text() | some.sampled_from(["file", "allow_pickle", "a/b", "../x"]), _TREES))
def test_arrays_by_name(model: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    _assert_same(model, _round_trip(model, tmp_path_factory.mktemp("state")))


def test_numbers_of_numpy_keep_their_type(tmp_path: Path) -> None:
    found = _round_trip({"rate": np.float32(0.1), "n": np.int64(3)}, tmp_path)
    assert type(found["rate"]) is np.float32
    assert type(found["n"]) is np.int64


def test_bytes(tmp_path: Path) -> None:
    assert _round_trip(b"\x00weights", tmp_path) == b"\x00weights"


def test_a_file_comes_back_as_a_copy(tmp_path: Path) -> None:
    (tmp_path / "net.bin").write_bytes(b"net")
    found = _round_trip(tmp_path / "net.bin", tmp_path)
    assert (found.name, found.read_bytes()) == ("net.bin", b"net")
    found.write_bytes(b"changed")
    assert unpack_state(tmp_path / "state").read_bytes() == b"net"


def test_a_folder_comes_back_as_a_copy(tmp_path: Path) -> None:
    (tmp_path / "net" / "layers").mkdir(parents=True)
    (tmp_path / "net" / "layers" / "0").write_bytes(b"net")
    found = _round_trip(str(tmp_path / "net"), tmp_path)
    assert (found / "layers" / "0").read_bytes() == b"net"
    assert (tmp_path / "net" / "layers" / "0").exists(), "the user's own stays"


def test_estimators_of_scikit_learn(tmp_path: Path) -> None:
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.linear_model import SGDClassifier
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = x[:, 0] > 0
    for number, model in enumerate(
        (
            SGDClassifier(random_state=0).partial_fit(x, y, classes=[False, True]),
            MLPClassifier(4, random_state=0).partial_fit(x, y, classes=[False, True]),
            GradientBoostingClassifier(n_estimators=2).fit(x, y),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = _round_trip(model, folder)
        assert (found.predict(x) == model.predict(x)).all()
        if hasattr(model, "partial_fit"):  # it goes on as the original would
            _, _ = model.partial_fit(x, y), found.partial_fit(x, y)
            assert (found.predict(x) == model.predict(x)).all()


def test_boosters_of_lightgbm(tmp_path: Path) -> None:
    import lightgbm

    x = np.random.default_rng(0).normal(size=(60, 3))
    options = {"objective": "binary", "verbose": -1, "num_threads": 1}
    booster = lightgbm.train(options, lightgbm.Dataset(x, x[:, 0] > 0), num_boost_round=3)
    found = _round_trip(booster, tmp_path)
    assert found.num_trees() == 3
    assert (found.predict(x) == booster.predict(x)).all()


def test_a_loop_of_jax_goes_on_where_it_stopped(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed: its arrays are not tried")
    optax = pytest.importorskip("optax", reason="optax is not installed: its states are not tried")
    optimizer = optax.adam(0.1)
    weights = {"w": jax.numpy.arange(4.0), "half": jax.numpy.ones(2, jax.numpy.bfloat16)}
    gradient = jax.tree.map(jax.numpy.ones_like, weights)

    def step(weights: Any, state: Any) -> Any:
        updates, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state

    leaves, structure = jax.tree.flatten(step(weights, optimizer.init(weights)))
    found = jax.tree.unflatten(structure, _round_trip(leaves, tmp_path))
    undisturbed = jax.tree.leaves(step(*jax.tree.unflatten(structure, leaves)))
    for one, other in zip(undisturbed, jax.tree.leaves(step(*found)), strict=True):
        assert one.dtype == other.dtype
        assert (one == other).all()
    with pytest.raises(TrialError, match=r"type optax\.\S* at 0 .*is neither an array"):
        pack_state([optimizer.init(weights)], tmp_path / "state-of-optax")


def test_a_loop_of_torch_goes_on_where_it_stopped(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: its tensors are not tried")

    def made() -> tuple[Any, Any]:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 1)
        return net, torch.optim.Adam(net.parameters(), lr=0.1)

    def step(net: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        (net(torch.ones(2, 3)) ** 2).sum().backward()
        optimizer.step()

    net, optimizer = made()
    step(net, optimizer)
    state = _round_trip({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path)
    other, other_optimizer = made()
    other.load_state_dict(state["net"])
    other_optimizer.load_state_dict(state["optimizer"])
    step(net, optimizer)
    step(other, other_optimizer)
    assert all(torch.equal(one, two) for one, two in zip(net.parameters(), other.parameters(), strict=True))
    half = _round_trip({"w": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "half")["w"]
    assert half.dtype is torch.bfloat16
    with pytest.raises(TrialError, match=r"save its state, by model.state_dict\(\)"):
        pack_state(net, tmp_path / "net")


class Net:
    """A model that nothing here knows."""


class Odd:
    """Looks like an estimator, and is none of a trusted library."""

    def fit(self) -> None:
        """Fit nothing."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return no parameter."""
        return {}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Net(), r"a value of type tests\.\S*Net cannot be saved without pickle; save its arrays by name"),
        (None, "a value of type NoneType cannot be saved"),
        (3.5, "a value of type float cannot be saved"),
        (lambda x: x, "a value of type function cannot be saved"),
        ({"net": Net()}, r"type tests\.\S*Net under 'net' is neither an array nor a number"),
        ({"layers": [{"w": {1, 2}}]}, "type set under 'w' at 0 under 'layers'"),
        ({1.5: np.ones(2)}, "the name 1.5 is a value of type float"),
        ({"w": np.array([Net()])}, "the array under 'w' holds Python objects"),
        ({"w": np.ma.masked_array([1], [True])}, r"type numpy\.ma\.\S*MaskedArray under 'w'"),
        ("no/such/file", "there is no file or folder 'no/such/file'; a text is saved as bytes"),
        (Path("no/such/file"), "there is no file or folder 'no/such/file'"),
        (Odd(), r"Odd.* cannot be saved"),
    ],
)
def test_what_cannot_be_saved_is_one_line_with_the_mend(model: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TrialError, match=message) as caught:
        pack_state(model, tmp_path / "state")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_state_is_one_line_and_runs_nothing(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (ran,))

    folder = tmp_path / "state"
    pack_state({"w": np.ones(3)}, folder)
    (folder / "arrays.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(TrialError):
        unpack_state(folder)
    (folder / "state.json").write_text(json.dumps({"schema": 1, "kind": "estimator"}))
    (folder / "content").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(TrialError, match="cannot be loaded"):
        unpack_state(folder)
    for text in ("", "[]", '{"kind": "tree"}', '{"kind": "later"}'):
        (folder / "state.json").write_text(text)
        with pytest.raises(TrialError):
            unpack_state(folder)
    assert not ran.exists()
