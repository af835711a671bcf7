"""VecEnvWrapper as SB3 has it, and wrappers in SB3's style under layers that speak columns."""

import copy
import functools
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv as SB3DummyVecEnv
from stable_baselines3.common.vec_env import VecEnvWrapper as SB3VecEnvWrapper

from jaxvec.vec import ColumnVecEnv, DummyVecEnv, VecEnv, VecEnvWrapper
from tests.vec.host_envs import CountEnv

N = 2


def dummy(length=3, **options):
    return DummyVecEnv([functools.partial(CountEnv, length, **options)] * N)


class Through(VecEnvWrapper):
    """Changes nothing."""

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        return self.venv.step_wait()


class Doubling(Through):
    """A user's wrapper: doubles rewards and observations, notes something in the infos."""

    def reset(self):
        return 2 * self.venv.reset()

    def step_wait(self):
        obs, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            info["noted"] = True
            if "terminal_observation" in info:
                info["terminal_observation"] = 2 * info["terminal_observation"]
        return 2 * obs, 2 * rewards, dones, infos


class Layer(ColumnVecEnv, VecEnvWrapper):
    """A layer in jaxvec's style: passes columns on."""

    def _reset_columns(self, indices=None):
        return self.venv.reset_arrays(indices)

    def _wait_columns(self):
        return self.venv.wait_arrays()


def test_everything_is_forwarded():
    inner = dummy(render_mode="rgb_array")
    venv = Through(inner)
    assert venv.num_envs == N
    assert venv.observation_space is inner.observation_space
    assert venv.unwrapped is inner.unwrapped is inner
    assert venv.seed(3) == [3, 4]
    assert venv.seed(3, mode="spawn") == inner.seed(3, mode="spawn")
    venv.seed(5)
    venv.set_options({"level": 1})
    venv.reset()
    assert venv.get_attr("resets") == [[(5, {"level": 1})], [(6, {"level": 1})]]
    venv.set_attr("secret", 1, indices=[0])
    venv.set_attr("secret", 2, indices=[1], where="unwrapped")
    assert venv.get_attr("secret", np.array([1, 0])) == [2, 1]
    assert venv.env_method("add", 1, indices=0, right=1) == [3]
    assert venv.has_attr("secret")
    assert not venv.has_attr("nothing")
    assert venv.env_is_wrapped(Through) == [False, False]
    assert venv.render().shape == (8, 4, 3)
    assert len(venv.get_images()) == N
    venv.set_options({"level": 2}, sticky=True)
    venv.reset()
    assert inner.get_attr("resets", 0)[0][-1] == (None, {"level": 2})
    venv.close()


def test_reset_infos_are_those_of_the_venv_inside():
    venv = Through(Through(dummy()))
    venv.seed(1)
    venv.reset()
    assert venv.reset_infos == [{"seed": 1}, {"seed": 2}]
    venv.reset_infos = [{}, {"a": 1}]
    assert venv.unwrapped.reset_infos == [{}, {"a": 1}]


def test_an_empty_space_falls_back_to_the_one_inside():
    venv = Through(dummy(), observation_space=spaces.Dict({}), action_space=spaces.Discrete(7))
    assert venv.observation_space == venv.venv.observation_space
    assert venv.action_space == spaces.Discrete(7)


def lookups(base, make):
    """Returns what attribute lookups through three layers give; the same classes over either base."""

    class A(base):
        def __init__(self, venv):
            super().__init__(venv)
            self.var_a = "a"

        def reset(self):
            return self.venv.reset()

        def step_wait(self):
            return self.venv.step_wait()

    class B(A):
        def __init__(self, venv):
            base.__init__(self, venv)
            self.var_b = "b"

        def func_b(self):
            return self.var_b

    class C(A):
        def __init__(self, venv):
            base.__init__(self, venv)
            self.var_c = "c"

    found = {}
    chains = {
        "A(C(B))": A(C(B(make()))),
        "C(B(B))": C(B(B(make()))),
        "A(B(A))": A(B(A(make()))),
    }
    for name, venv in chains.items():
        for attribute in ("var_a", "var_b", "var_c", "func_b", "envs", "nothing", "num_envs"):
            try:
                value = getattr(venv, attribute)
                found[name, attribute] = type(value).__name__
            except AttributeError as error:
                found[name, attribute] = "ambiguous" if "ambiguous" in str(error) else "lacking"
    return found


def test_attributes_are_looked_up_as_sb3_does():
    ours = lookups(VecEnvWrapper, dummy)
    theirs = lookups(SB3VecEnvWrapper, lambda: SB3DummyVecEnv([CountEnv] * N))
    assert ours == theirs
    assert {"ambiguous", "lacking", "str"} <= set(ours.values())


def test_the_message_of_an_ambiguous_lookup_names_both_classes():
    class Marked(Through):
        def __init__(self, venv):
            super().__init__(venv)
            self.mark = 1

    venv = Through(Marked(Marked(dummy())))
    with pytest.raises(AttributeError, match=r"Recursive attribute lookup for mark .*Marked"):
        venv.mark  # noqa: B018
    assert venv.getattr_recursive("mark") == 1
    assert venv.getattr_depth_check("mark", already_found=False).endswith("Marked")
    assert venv.getattr_depth_check("nothing", already_found=True) is None


def test_a_property_that_raises_attribute_error_does_not_recurse():
    class Broken(Through):
        @property
        def broken(self):
            return self.venv.nothing

    with pytest.raises(AttributeError, match="broken"):
        Broken(dummy()).broken  # noqa: B018


def test_a_wrapper_that_is_not_built_yet_has_no_attributes():
    blank = Through.__new__(Through)
    with pytest.raises(AttributeError, match="anything"):
        blank.anything  # noqa: B018
    assert copy.copy(blank).__dict__ == {}
    assert pickle.loads(pickle.dumps(blank)).__dict__ == {}


def test_layers_above_see_what_a_users_wrapper_returns():
    venv, expected = Layer(Doubling(Layer(dummy()))), Doubling(dummy())
    np.testing.assert_array_equal(venv.reset(), expected.reset())
    for _ in range(4):
        ours, theirs = venv.step([0] * N), expected.step([0] * N)
        for one, other in zip(ours[:3], theirs[:3], strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        assert [sorted(map(str, info.items())) for info in ours[3]] == [
            sorted(map(str, info.items())) for info in theirs[3]
        ]


def test_columns_are_made_of_a_users_tuple():
    venv = Doubling(dummy(2))
    first = venv.reset_arrays()
    assert first.first.all()
    assert first.obs.tolist() == [[0, 0]] * N
    venv.step([0] * N)
    timestep = venv.step_arrays([0] * N)
    assert timestep.obs.tolist() == [[0, 0]] * N
    assert timestep.reward.tolist() == [2, 2]
    assert timestep.truncated.all()
    assert not timestep.terminated.any()
    assert timestep.final_rows.tolist() == [0, 1]
    assert timestep.final_obs.tolist() == [[4, 4]] * N
    assert timestep.rows[0]["noted"]
    with pytest.raises(NotImplementedError, match=r"Doubling.*\[1\]"):
        venv.reset_arrays([1])
    with pytest.raises(NotImplementedError, match="Doubling cannot step single rows"):
        venv.send([0], [0])
    with pytest.raises(NotImplementedError, match="Doubling"):
        venv.recv()


@pytest.mark.parametrize("base", [DummyVecEnv, Layer])
def test_a_subclass_that_overrides_sb3s_methods_is_not_passed_by(base):
    class Shifted(base):
        def reset(self):
            return super().reset() + 100

        def step_wait(self):
            obs, rewards, dones, infos = super().step_wait()
            return obs + 100, rewards, dones, infos

    inner = [CountEnv] * N if base is DummyVecEnv else dummy()
    venv = Layer(Shifted(inner))
    assert venv.reset().tolist() == [[100, 100]] * N
    assert venv.step([0] * N)[0].tolist() == [[101, 101]] * N


def test_a_terminal_observation_that_a_wrapper_took_away_stays_away():
    class Losing(Through):
        def step_wait(self):
            obs, rewards, dones, infos = self.venv.step_wait()
            return obs, rewards, dones, [dict.fromkeys(["a"], 1) for _ in infos]

    venv = Layer(Losing(dummy(1)))
    venv.reset()
    _, _, dones, infos = venv.step([0] * N)
    assert dones.all()
    assert infos[0] == {"a": 1, "TimeLimit.truncated": False}


def test_rewards_handed_out_may_be_written_into():
    kept = []

    class Keeping(Layer):
        def _wait_columns(self):
            kept.append(super()._wait_columns())
            return kept[-1]

    venv = Keeping(dummy())
    venv.reset()
    _, rewards, _, _ = venv.step([0] * N)
    rewards += 5
    assert kept[0].reward.tolist() == [1, 1]


def test_any_venv_of_sb3_can_be_the_base():
    venv = Through(SB3DummyVecEnv([CountEnv] * N))
    venv.seed(1)
    assert venv.reset().shape == (N, 2)
    assert venv.reset_infos == [{"seed": 1}, {"seed": 2}]
    assert venv.step([0] * N)[1].tolist() == [1, 1]
    assert isinstance(venv.unwrapped, SB3DummyVecEnv)


def test_a_venv_of_ones_own_needs_sb3s_methods_only():
    class Own(VecEnv):
        def reset(self):
            return np.zeros((self.num_envs, 1))

        def step_async(self, actions):
            self.actions = actions

        def step_wait(self):
            return np.asarray(self.actions)[:, None], np.ones(2), np.zeros(2, bool), [{}, {}]

        def close(self):
            self.is_closed = True

        def get_attr(self, attr_name, indices=None):
            return [None for _ in self._get_indices(indices)]

        def set_attr(self, attr_name, value, indices=None):
            raise NotImplementedError

        def env_method(self, method_name, *args, indices=None, **kwargs):
            raise NotImplementedError

        def env_is_wrapped(self, wrapper_class, indices=None):
            return [False] * self.num_envs

    box = spaces.Box(-1, 1, (1,))
    with Layer(Own(2, box, box)) as venv:
        assert venv.reset().shape == (2, 1)
        obs, _, _, infos = venv.step([3, 4])
        assert obs.tolist() == [[3], [4]]
        assert infos == [{"TimeLimit.truncated": False}] * 2
        own = venv.unwrapped
    assert own.is_closed
