import types

import ganger.schedulers


def test_public_names_are_those_that_the_package_imports():
    missing = [name for name in ganger.schedulers.__all__ if not hasattr(ganger.schedulers, name)]
    assert not missing
    classes = {
        name
        for name, value in vars(ganger.schedulers).items()
        if isinstance(value, type | types.FunctionType) and not name.startswith("_")
    }
    assert classes - {"Any", "SchedulerError", "get_args"} | {"SCHEDULERS"} == set(
        ganger.schedulers.__all__
    )
