"""The examples in docstrings."""

import doctest
import importlib
import pkgutil

import pytest

import teatime


@pytest.mark.parametrize("name", ["teatime", *(f"teatime.{module.name}" for module in pkgutil.iter_modules(teatime.__path__))])
def test_examples(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name}: {error}")
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
