"""Options and settings of the runs of `proteus run` in tests."""

from pathlib import Path

from tests.support import slow_apps as paced

FAST = ("--scale", "100", "--max-vcpus", "4")
#: Of a run whose every tick counts, also on a computer that has other things to do.
STEADY = ("--scale", "50", "--max-vcpus", "4")
#: Ticks that are kept also where other tests run beside this one.
CALM = {"PROTEUS_TICK_S": "400", "PROTEUS_RENEWAL_LEAD_S": "480"}
#: A job of which only its life matters; its kernels leave the processors to other tests.
PACED = ("slow_apps:Paced", "--code", str(Path(paced.__file__)))
