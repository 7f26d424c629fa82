"""Switches that make this machine compute like one with narrower vectors; none of them may change an answer.

`python tests/narrow_vectors.py` prints the variables that switch AVX-512 off, for `env`. It prints nothing where there
is no AVX-512: a run with them would be the same run.
"""

from __future__ import annotations

import platform

import numpy as np

# NumPy's levels that hold AVX-512, by the names of NumPy 2.4 and, all but the first, of earlier ones.
_WIDE = ("X86_V4", "AVX512")
_ELSEWHERE = {
    "avx2": {"OPENBLAS_CORETYPE": "Haswell", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "baseline": {"OPENBLAS_CORETYPE": "Nehalem", "ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}


def switched_off_in_numpy(level: str) -> list[str]:
    """Names of the features that NumPy must not use at `level`: only those it dispatches on and this processor has.

    NumPy warns of any other name.
    """
    core = np._core._multiarray_umath
    usable = [name for name in core.__cpu_dispatch__ if core.__cpu_features__[name]]
    return [name for name in usable if level == "baseline" or name.startswith(_WIDE)]


def environment(level: str) -> dict[str, str]:
    """Variables that limit NumPy, OpenBLAS, torch and our kernel to `level`: "avx2" or "baseline".

    Empty where the processor has no more than that.
    """
    names = switched_off_in_numpy(level)
    if not names or platform.machine() not in ("x86_64", "AMD64"):
        return {}
    ours = {"NPY_DISABLE_CPU_FEATURES": ",".join(names), "APPORTION_INSTRUCTIONS": level}
    return ours | _ELSEWHERE[level]


if __name__ == "__main__":
    print(" ".join(f"{name}={value}" for name, value in environment("avx2").items()))
