"""What SB3's VecEnv page documents can be called here in the same way: names, order and defaults."""

import inspect

import pytest
from stable_baselines3.common import vec_env as sb3
from stable_baselines3.common.vec_env.util import dict_to_obs, obs_space_info

from jaxvec import vec

CLASSES = ("VecEnv", "VecEnvWrapper", "DummyVecEnv", "SubprocVecEnv", "CloudpickleWrapper")
FUNCTIONS = {
    "tile_images": sb3.base_vec_env.tile_images,
    "dict_to_obs": dict_to_obs,
    "obs_space_info": obs_space_info,
}


def parameters(function):
    """Returns name, default and kind of each parameter that can be given by place, and `**` or `*`."""
    return [
        (each.name, each.default, each.kind)
        for each in inspect.signature(function).parameters.values()
    ]


def public(kind):
    names = [name for name in dir(kind) if not name.startswith("_") or name == "__init__"]
    return [name for name in names if callable(getattr(kind, name))]


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_takes_what_sb3s_takes(name):
    theirs = getattr(sb3, name, None) or getattr(sb3.base_vec_env, name)
    ours = getattr(vec, name)
    for method in public(theirs):
        wanted = parameters(getattr(theirs, method))
        given = parameters(getattr(ours, method))
        own_extras = [each for each in given if each not in wanted]
        assert [each for each in given if each in wanted] == wanted, method
        # What jaxvec adds has a default: it need not be known.
        assert all(default is not inspect.Parameter.empty for _, default, _ in own_extras), method


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_takes_what_sb3s_takes(name):
    assert parameters(getattr(vec, name)) == parameters(FUNCTIONS[name])


def test_properties_are_properties():
    for name in CLASSES[:4]:
        theirs, ours = (
            getattr(sb3, name, None) or getattr(sb3.base_vec_env, name),
            getattr(vec, name),
        )
        for each, value in inspect.getmembers(theirs):
            if isinstance(value, property):
                assert isinstance(getattr(ours, each), property)
