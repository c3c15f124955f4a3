"""Parameters that an application cannot use are refused in one line, before anything is read, written or started."""

from typing import Any

import pytest

from proteus_spot.infra.datasets.kinds import DEFAULT_SETS, KINDS, kind_for
from proteus_spot.infra.errors import InputError
from proteus_spot.psengine.apps.registry import BUILT_IN, METRICS, resolve
from proteus_spot.psengine.single_process import initial
from proteus_spot.studies.job_spec import Training
from proteus_spot.tasks.training.application_checks import check_parameters, check_sizes, check_sizes_here

EXAMPLES = {"n_inputs": 4, "n_classes": 2, "n_examples": 30}
DOCUMENTS = {"n_words": 10, "n_tokens": 50, "n_documents": 5, "n_partitions": 11}


def job(app: str, **params: Any) -> Training:
    return Training(app=app, app_params=params, data="a.csv", clocks=5)


def refused(says: str, check: Any, *arguments: Any) -> None:
    with pytest.raises(InputError, match=says) as caught:
        check(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "abc", "nan", [], float("inf")])
@pytest.mark.parametrize(("app", "name"), [("mf", "rank"), ("lda", "k"), ("kmeans", "k")])
def test_sizes_of_a_model_are_whole_numbers(app: str, name: str, value: Any) -> None:
    refused(
        f"^--param: .*{name} is {value!r}".replace("[", r"\["), check_parameters, "--param", job(app, **{name: value})
    )


@pytest.mark.parametrize("value", [0, -1, True, "", "abc", [], float("inf"), float("nan")])
@pytest.mark.parametrize(
    ("app", "name"), [("mf", "step"), ("mlr", "step"), ("mlr", "gamma"), ("lda", "alpha"), ("lda", "beta")]
)
def test_steps_and_weights_are_numbers_above_0(app: str, name: str, value: Any) -> None:
    refused(f"{name} is .*; want a number above 0", check_parameters, "--param", job(app, **{name: value}))


@pytest.mark.parametrize(
    ("app", "params", "says"),
    [
        ("mlr", {"nope": 1}, "unexpected keyword argument 'nope'"),
        ("mlr", {"features": 1.5}, "features is 1.5; want a whole number from 0"),
        ("mlr", {"l2": -1}, "l2 is -1; want a number from 0"),
        ("mlr", {"step": 10**400}, "want a number above 0"),
        ("mlr", {"decay": "x"}, "decay is 'x'; want a number from 0"),
        ("lda", {"seed": -1}, "seed is -1; want a whole number from 0"),
        ("kmeans", {"init_seed": None}, "init_seed is None; want a whole number from 0"),
        ("mf", {"schedule": "fast"}, "schedule is 'fast'; want one of"),
        ("lda", {"n_words": 5}, "^--param n_words: the data say it; leave it out"),
        ("svm", {}, "app 'svm'"),
    ],
)
def test_what_an_application_does_not_take(app: str, params: dict[str, Any], says: str) -> None:
    check = check_parameters if app != "svm" else _resolved
    refused(says, check, "--param", job(app, **params))


def test_a_class_of_a_library_is_no_application() -> None:
    says = "app 'sklearn.linear_model:LogisticRegression': is a class of the library sklearn and no application; an"
    refused(says, _resolved, "--param", job("sklearn.linear_model:LogisticRegression"))
    _resolved("", job("proteus_spot.psengine.apps.mlr:MultinomialLogisticRegression"))
    _resolved("", job("mine:App"))


def _resolved(name: str, training: Training) -> None:
    from proteus_spot.tasks.training.application_checks import check_application

    del name
    check_application(training)


def test_whole_steps_and_plain_defaults_are_taken() -> None:
    for app, params in (("mlr", {"step": 4, "features": 8, "gamma": 0.1}), ("lda", {"alpha": 1}), ("mf", {"rank": 1})):
        check_parameters("--param", job(app, **params))
    check_sizes_here(job("kmeans", k=30), EXAMPLES)
    check_sizes_here(job("lda", k=20), DOCUMENTS)


@pytest.mark.parametrize(
    ("app", "params", "sizes", "says"),
    [
        ("kmeans", {"k": 31}, EXAMPLES, "k is 31, and there are 30 examples"),
        ("lda", {"parallel": "model"}, DOCUMENTS, "there are 11 partitions and 10 words"),
        ("lda", {"k": 10**12}, DOCUMENTS, r"word_topic 10 x 1000000000000.* GiB"),
        (
            "lda",
            {},
            {**DOCUMENTS, "n_words": 2**31},
            "fix the largest index in the data, or choose smaller parameters",
        ),
        ("mlr", {}, {**EXAMPLES, "n_inputs": 2**42}, "weights 4398046511105 x 2"),
    ],
)
def test_what_does_not_fit_the_data_or_this_machine(
    app: str, params: dict[str, Any], sizes: dict[str, float], says: str
) -> None:
    refused(says, check_sizes_here, job(app, **params), sizes)


def test_sizes_alone_are_refused_under_the_name_they_have_there() -> None:
    refused(
        r"^training\.app_params: k is 31, and there are 30 examples",
        check_sizes,
        "training.app_params",
        job("kmeans", k=31),
        EXAMPLES,
    )
    check_sizes("training.app_params", job("lda", k=10**12), DOCUMENTS)  # other machines may hold it


@pytest.mark.parametrize("app", sorted(BUILT_IN))
def test_a_rule_may_name_the_figures_that_an_application_has(app: str) -> None:
    data = KINDS[kind_for(app)](DEFAULT_SETS[kind_for(app)], 2, app)
    made = resolve(app, {**data.sizes, "n_partitions": 2})
    figures = set(made.evaluate(initial(made, 0), data.heldout()))
    assert figures == set(METRICS[app]) - ({"auprc", "rmse"} if app == "bgd" else set())  # ten classes
