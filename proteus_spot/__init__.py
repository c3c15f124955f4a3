"""Proteus: trains machine-learning models on machines that can be taken away at any moment.

What applications, drivers and trials import stands here: `from proteus_spot import TableSpec, Work`. The folders of the
repository are the packages of this one.

    bidding/     BidBrain: what to buy, hold and let go, and what that costs
    benchmarks/  the benchmarks of `proteus bench`
    flows/       the Prefect flows, and the command
    infra/       the boundary to EC2, S3, the state database and the simulated market
    nets/        neural networks by DiLoCo
    psengine/    AgileML: the parameter server, its applications and drivers
    reports/     pages and pictures
    studies/     backtests, plans, bills, eviction models, predictions
    tasks/       the steps of the flows
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proteus_spot.infra.trials.state_store import load_state
    from proteus_spot.infra.trials.trial import Trial
    from proteus_spot.psengine.apps.base import App, Application, Executor, Parameters, Work
    from proteus_spot.psengine.config import Adam, Add, JobConfig, JobError, Momentum, Nesterov, Replace, Sgd, TableSpec
    from proteus_spot.psengine.drivers.interface import Dispatcher, Done, Driver, Task
    from proteus_spot.psengine.drivers.ssp import Ssp

__all__ = [
    "Adam",
    "Add",
    "App",
    "Application",
    "Dispatcher",
    "Done",
    "Driver",
    "Executor",
    "JobConfig",
    "JobError",
    "Momentum",
    "Nesterov",
    "Parameters",
    "Replace",
    "Sgd",
    "Ssp",
    "TableSpec",
    "Task",
    "Trial",
    "Work",
    "load_state",
]

#: {module: its public names}. Modules are imported on first use: a node sets the thread counts of NumPy's libraries
#: before NumPy is imported.
_PUBLIC = MappingProxyType(
    {
        "infra.trials.state_store": ("load_state",),
        "infra.trials.trial": ("Trial",),
        "psengine.apps.base": ("App", "Application", "Executor", "Parameters", "Work"),
        "psengine.config": (
            "Adam",
            "Add",
            "JobConfig",
            "JobError",
            "Momentum",
            "Nesterov",
            "Replace",
            "Sgd",
            "TableSpec",
        ),
        "psengine.drivers.interface": ("Dispatcher", "Done", "Driver", "Task"),
        "psengine.drivers.ssp": ("Ssp",),
    }
)


def __getattr__(name: str) -> Any:
    for module, names in _PUBLIC.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
