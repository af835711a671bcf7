"""The public names: the lazy table, the stub for type checkers, and what is really there."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import jaxvec

STUB = Path(jaxvec.__file__).with_name("__init__.pyi")
VEC_STUB = Path(jaxvec.vec.__file__).with_name("__init__.pyi")
ASKED_FOR = (
    *("chain", "frame_stack", "normalize_observation", "normalize_reward", "episode_statistics"),
    *("update_moments", "RunningMoments", "Timestep", "VecSpec", "Transform", "Env", "BatchedEnv"),
    *("vectorize", "wrap", "rollout", "save", "load"),
)


def stub_names(stub: Path = STUB) -> dict[str, str]:
    """Returns name -> module of everything that a stub exports."""
    return {
        alias.asname: node.module
        for node in ast.walk(ast.parse(stub.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }


@pytest.mark.parametrize("name", jaxvec.__all__)
def test_every_public_name_resolves(name):
    assert getattr(jaxvec, name) is not None
    assert name in dir(jaxvec)


def test_the_stub_exports_exactly_the_public_names():
    assert set(stub_names()) == set(jaxvec.__all__)


def test_the_stub_takes_every_name_from_the_module_that_the_table_names():
    for name, module in stub_names().items():
        expected = getattr(import_module(module), name, None) or import_module(f"{module}.{name}")
        assert getattr(jaxvec, name) is expected, name


def test_the_stub_of_vec_says_what_its_table_says():
    names = stub_names(VEC_STUB)
    assert set(names) == set(jaxvec.vec.__all__)
    for name, module in names.items():
        assert getattr(jaxvec.vec, name) is getattr(import_module(module), name), name


@pytest.mark.parametrize("name", ASKED_FOR)
def test_the_names_of_the_interface_are_there(name):
    assert name in jaxvec.__all__


def test_environments_and_laws_have_the_names_of_the_interface():
    for name in ("make", "register", "available", "from_gymnasium_func"):
        assert callable(getattr(jaxvec.envs, name))
    for name in ("check_transform", "check_env"):
        assert callable(getattr(jaxvec.testing, name))


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="no attribute 'frame_stak'"):
        _ = jaxvec.frame_stak


def test_every_public_function_and_class_has_a_docstring():
    packages = (jaxvec, jaxvec.envs, jaxvec.spaces, jaxvec.random, jaxvec.io, jaxvec.testing)
    for package in packages:
        for name in getattr(package, "__all__", ()):
            value = getattr(package, name)
            if inspect.isroutine(value) or inspect.isclass(value):
                assert inspect.getdoc(value), f"{package.__name__}.{name}"


def test_rollout_has_the_agreed_signature():
    parameters = inspect.signature(jaxvec.rollout).parameters.values()
    names = [(each.name, each.kind is each.KEYWORD_ONLY) for each in parameters]
    positional = [(name, False) for name in ("env", "policy", "key", "num_steps")]
    assert names == [*positional, ("start", True), ("collect", True), ("progress", True)]
