import types

import ganger.workload


def test_public_names_are_those_that_the_package_imports():
    imported = {
        name
        for name, value in vars(ganger.workload).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert imported == set(ganger.workload.__all__)
    assert ganger.workload.__all__ == sorted(ganger.workload.__all__)
