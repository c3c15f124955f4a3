"""Which compiled kernels NumPy, BLAS, numba and torch take on a node: the fastest of its processor, or the same on all.

BLAS and NumPy choose kernels by the processor when they are imported, and numba compiles for it. Other kernels add up
in another order, so that a model trained on machines of several types, or repeated on another type, differs in its last
bits. With `avx2` all take those of one processor (Haswell, 2013), which every later x86-64 machine can run.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from proteus_spot.infra.errors import InputError

CpuKernels = Literal["native", "avx2"]

_CPU_INFO = Path("/proc/cpuinfo")
#: Variables that the libraries read at import. NumPy's names the features above AVX2 that it dispatches by.
_AVX2: Mapping[str, str] = MappingProxyType(
    {
        "OPENBLAS_CORETYPE": "Haswell",
        "MKL_CBWR": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",  # these two: torch's
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx2,+fma,+bmi,+bmi2,+f16c,+lzcnt,+movbe,+popcnt",
    }
)


def kernel_environment(kernels: CpuKernels, cpu_info: Path = _CPU_INFO) -> Mapping[str, str]:
    """Return the variables to be set before NumPy is imported; none for `native`.

    Raises
    ------
    InputError
        If this processor cannot run the kernels.
    """
    if kernels == "native":
        return {}
    try:
        flags = cpu_info.read_text()
    except OSError:
        flags = ""
    if not {"avx2", "fma", "bmi2"} <= set(flags.split()):
        raise InputError(
            "PROTEUS_CPU_KERNELS: avx2 needs an x86-64 processor with AVX2, which this machine has not; "
            "use native, or buy machines of other types"
        )
    return _AVX2
