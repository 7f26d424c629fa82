"""Builds the optional compiled kernel; everything else is in pyproject.toml.

Without a C++ compiler the extension is skipped and the NumPy path does the same work.
"""

from setuptools import Extension, setup

kernel = Extension(
    "apportion.linalg._kernel",
    sources=["src/apportion/linalg/_kernel.cpp"],
    language="c++",
    extra_compile_args=["-O3", "-std=c++17", "-pthread", "-fno-math-errno", "-Wno-psabi"],
    extra_link_args=["-pthread"],
    optional=True,
)

setup(ext_modules=[kernel])
