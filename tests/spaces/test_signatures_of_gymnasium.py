"""The vector utilities that gymnasium documents are called here in the same way."""

import inspect

import gymnasium.vector.utils as gym_utils
import pytest

import jaxvec.spaces as ours

FUNCTIONS = [
    "batch_space",
    "batch_differing_spaces",
    "concatenate",
    "iterate",
    "create_empty_array",
    "create_shared_memory",
    "read_from_shared_memory",
    "write_to_shared_memory",
]


def parameters(function):
    """Returns name, default and kind of each parameter."""
    given = inspect.signature(function).parameters.values()
    return [(each.name, each.default, each.kind) for each in given]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_gymnasiums_parameters_in_its_order_with_its_defaults(name):
    if not hasattr(gym_utils, name):
        pytest.skip(f"this gymnasium has no {name}")
    assert parameters(getattr(ours, name)) == parameters(getattr(gym_utils, name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_space_is_registered_by_functions_with_these_parameters(name):
    function = getattr(ours, name)
    names = [each for each, *_ in parameters(function)]
    for kind, registered in function.registry.items():
        assert len(parameters(registered)) == len(names), (name, kind)
        optional = [default for _, default, _ in parameters(function)]
        if registered.__name__ in ("_", name):
            assert [default for _, default, _ in parameters(registered)] == optional, (name, kind)


@pytest.mark.parametrize(
    ("name", "rest"),
    [("batch_space", 1), ("create_empty_array", 2), ("iterate", 1), ("concatenate", 2)],
)
def test_what_is_no_space_is_told_before_anything_about_the_other_arguments(name, rest):
    for module in (ours, gym_utils):
        with pytest.raises(TypeError, match=f"`{name}` is not a gymnasium Space instance"):
            getattr(module, name)("space", *[None] * rest)


def test_nothing_else_that_works_on_spaces_is_documented_there():
    rest = set(gym_utils.__all__) - set(FUNCTIONS)
    assert rest == {"CloudpickleWrapper", "clear_mpi_env_vars"}
