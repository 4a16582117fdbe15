"""What the package exports is what it names, sorted."""

import loaders.format


def test_every_exported_name_is_there_and_in_order() -> None:
    names = loaders.format.__all__
    assert all(hasattr(loaders.format, name) for name in names)
    constants, others = [name for name in names if name.isupper()], [name for name in names if not name.isupper()]
    assert constants + others == names
    assert sorted(constants) == constants
    assert sorted(others) == others
