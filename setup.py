"""Builds the optional compiled kernel; everything else is in pyproject.toml.

Without a C++ compiler the extension is skipped and the NumPy path does the same work. Products and sums are never
contracted to fused operations by the compiler: whether that happens would depend on the instruction set.
"""

from pathlib import Path

from setuptools import Extension, setup

_FOLDER = "src/apportion/linalg/"

kernel = Extension(
    "apportion.linalg._kernel",
    sources=[f"{_FOLDER}_{name}.cpp" for name in ("kernel", "users", "reading")],
    depends=sorted(map(str, Path(_FOLDER).glob("*.hpp"))),
    language="c++",
    extra_compile_args=["-O3", "-std=c++17", "-pthread", "-fno-math-errno", "-ffp-contract=off", "-Wno-psabi"],
    extra_link_args=["-pthread"],
    optional=True,
)

setup(ext_modules=[kernel])
