"""Packages that are not always there, and which extra of copriv brings each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import InputError

# What is imported: the package that has it, and the extra that has the package.
EXTRAS = {
    "adbc_driver_postgresql": ("adbc-driver-postgresql", "sql"),
    "dask": ("dask", "cluster"),
    "distributed": ("distributed", "cluster"),
    "duckdb": ("duckdb", "sql"),
    "matplotlib": ("matplotlib", "lab"),
    "onnx": ("onnx", "export"),
    "sklearn": ("scikit-learn", "export"),
}


@contextmanager
def needing_extras(what: str) -> Iterator[None]:
    """Do what needs packages that are not always there.

    Args:
      what: What the sentence says needs them, such as an option.

    Raises:
      InputError: One of them is not installed, or finds no folder for files of its own.

    >>> with needing_extras("--to onnx"):
    ...     raise ModuleNotFoundError(name="onnx.helper")
    Traceback (most recent call last):
    common.errors.InputError: --to onnx needs the package onnx; pip install 'copriv[export]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package, extra = EXTRAS.get((error.name or "").partition(".")[0], ("", ""))
        if not package:
            raise
        raise InputError(
            f"{what} needs the package {package}; pip install 'copriv[{extra}]'"
        ) from None
    except OSError as error:
        if "MPLCONFIGDIR" not in str(error):
            raise
        raise InputError(
            f"{what} needs a folder that matplotlib can write to; set MPLCONFIGDIR to one"
        ) from None


@contextmanager
def away_from_here() -> Iterator[None]:
    """Import what would read settings in the folder where a command was typed.

    They may be a stranger's: matplotlib takes a ``matplotlibrc`` there. Version 3.9 can be made to
    run code by it, and later ones to run TeX on a text of its own.
    """
    here = os.open(".", os.O_PATH)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(here)
        os.close(here)
