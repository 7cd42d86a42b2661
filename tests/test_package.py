"""What `import ganger` offers."""

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ganger


def test_every_public_name_exists_and_every_lazy_one_is_public():
    for name in ganger.__all__:
        assert getattr(ganger, name) is not None
    assert {*ganger._HOME_OF, "__version__"} == {*ganger.__all__}
    assert ganger.__all__ == sorted(ganger.__all__)
    assert {*ganger.__all__} <= {*dir(ganger)}


def test_public_names_are_those_that_type_checkers_see():
    with open(ganger.__file__) as file:
        tree = ast.parse(file.read())
    (guarded,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.name: statement.module
        for statement in guarded.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen.keys() == ganger._HOME_OF.keys()
    for name, module in seen.items():
        assert getattr(importlib.import_module(module), name) is getattr(ganger, name)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ganger' has no attribute 'nonsense'"):
        _ = ganger.nonsense


def test_importing_the_package_imports_nothing_else():
    script = "import sys, ganger; assert not {'numpy', 'numba', 'msgspec'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_installed_version_is_the_source_version():
    assert importlib.metadata.version("ganger") == ganger.__version__


def test_the_python_in_the_readme_works(capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(example, {})
    assert re.fullmatch(r"\d+\.\d s, utilisation \d+%\n", capsys.readouterr().out)
