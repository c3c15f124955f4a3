"""Neural networks by DiLoCo: K logical workers take local steps, the servers apply the mean of their changes.

The mathematics depends on the workers alone, not on the machines: one to K nodes train to the same bits. Only the
modules whose names begin with `torch` import it.

    application     a net as an application of the engine
    channel         one end of a pipe between two processes, with shared memory for arrays
    driver          groups of the first clocks, whose steps are warm
    layout          named arrays as flat tables of rows
    local_steps     the local steps of one worker in one clock
    net             what a class inherits that is trained by DiLoCo
    processes       processes of a node that run the tasks of a net
    sampling        which steps a group has, and which examples a worker takes in which step
    settings        the settings of a net
    torch_methods   what a user of PyTorch writes, and what it does by default
    torch_net       the class that a user of PyTorch inherits from
    torch_schedule  rates of each step, as a scheduler of torch sets them
    torch_trainer   local steps of a module of PyTorch
    trainer         what the core wants of a library: local steps, evaluation, a file of the model
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proteus_spot.nets.net import Net
    from proteus_spot.nets.torch_net import TorchNet
    from proteus_spot.psengine.config import Nesterov

__all__ = ["Nesterov", "Net", "TorchNet"]

#: {name: its module}. The core is imported without torch.
_PUBLIC = MappingProxyType(
    {
        "Net": "proteus_spot.nets.net",
        "Nesterov": "proteus_spot.psengine.config",
        "TorchNet": "proteus_spot.nets.torch_net",
    }
)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
