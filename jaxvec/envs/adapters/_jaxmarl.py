"""JaxMARL's environments of several agents: their team as one row, or every agent as a row of its own.

`from_jaxmarl` makes an `Env` of the team: what agent a sees is row a of `[A, ...]`, the reward is shared.
`agents_as_rows` makes N * A rows of N such teams, for one policy that all agents share.
"""

import copy
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from jaxvec.core._arguments import check_one_of
from jaxvec.core._transform import Timestep
from jaxvec.envs._env import BatchedEnv, Env, check_batched
from jaxvec.envs.adapters._common import library, one_action, zeros_like_result
from jaxvec.spaces import batch_space, to_gymnasium_space
from jaxvec.typing import Action, Array, Key, Obs, PyTree

_NEVER = 2**31 - 1


def from_jaxmarl(env: Any, *, team_reward: Literal["mean", "sum"] = "mean") -> Env[Any, Any]:
    """Makes an environment of one of JaxMARL; its team of A agents acts as one.

    Args:
      env: JaxMARL's environment, or its id for `jaxmarl.make`. All its agents must observe the same
        space, and act in the same.
      team_reward: what the team's reward is of the agents'. Each agent's own is `info["agent_reward"]`
        `[A]`; `info["agent_done"]` `[A]` says who is done.

    Returns:
      The environment: observations `[A, *D]`, actions `[A, *E]` (MultiDiscrete of Discrete ones).
      Its time limit is `max_steps`, where the environment has that; JaxMARL merges it into its
      termination (and MPE ends one step later than it says).

    Raises:
      MissingExtraError: if an id came and jaxmarl is not installed.
      TypeError: if `env` is no environment of JaxMARL.
      ValueError: if the agents' spaces differ.
    """
    if isinstance(env, str):
        env = library("from_jaxmarl", "jaxmarl", "jaxmarl").make(env)
    if not callable(getattr(env, "step_env", None)) or getattr(env, "agents", None) is None:
        raise TypeError(
            f"from_jaxmarl: env={env!r} has no step_env and agents. Pass what jaxmarl.make(id) returns, "
            "or the id."
        )
    check_one_of("from_jaxmarl", "team_reward", team_reward, ("mean", "sum"))
    agents = list(env.agents)
    space = batch_space(_common_space(env, agents, "observation_space"), len(agents))
    action_space = batch_space(_common_space(env, agents, "action_space"), len(agents))
    limit: Any = getattr(env, "max_steps", None)
    endless = copy.copy(env)
    if limit is not None:
        endless.max_steps = _NEVER

    def stacked(columns: Any) -> Array:
        return jnp.stack([jnp.asarray(columns[agent]) for agent in agents])

    def step_raw(key: Key, state: PyTree, action: Action) -> Any:
        actions = {agent: action[place] for place, agent in enumerate(agents)}
        obs, after, rewards, dones, _ = endless.step_env(key, state, actions)
        info = {"agent_reward": stacked(rewards).astype(jnp.float32), "agent_done": stacked(dones)}
        return obs, after, dones["__all__"], info

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        del params
        obs, state = endless.reset(key)
        info = zeros_like_result(lambda: step_raw(key, state, one_action(action_space))[3])
        return state, stacked(obs), info

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, bool, dict[str, Any]]:
        del params
        obs, after, done, info = step_raw(key, state, action)
        rewards = info["agent_reward"]
        reward = rewards.mean() if team_reward == "mean" else rewards.sum()
        return after, stacked(obs), reward, done, False, info

    return Env(
        reset=reset,
        step=step,
        params=None,
        observation_space=space,
        action_space=action_space,
        max_episode_steps=None if limit is None else int(limit),
        metadata={"name": f"jaxmarl:{env.name}", "agents": tuple(agents)},
    )


def make(name: str, **options: Any) -> Env[Any, Any]:
    """Makes `jaxmarl:ID`; options go to `jaxmarl.make`."""
    env = library(f"make('jaxmarl:{name}')", "jaxmarl", "jaxmarl").make(name, **options)
    return from_jaxmarl(env)._replace(metadata={"name": f"jaxmarl:{name}"})


def agents_as_rows(env: BatchedEnv) -> BatchedEnv:
    """Makes N * A rows of N teams: row `n A + a` is agent a of team n.

    Every agent gets its own reward; a team's episode ends for all its agents at once.

    Args:
      env: of `vectorize(from_jaxmarl(...), N)`, without layers: these go on top of the result.

    Returns:
      The rows, for `wrap` and `rollout`. Its `reset` takes `[N * A]` keys, of which a team uses its first
      agent's.

    Raises:
      TypeError: if `env` is no `BatchedEnv`.
      ValueError: if it is not one of teams.
    """
    check_batched("agents_as_rows", env)
    shape = env.spec.action_space.shape
    info = {} if env.env is None else _info_avals(env)
    if not shape or "agent_reward" not in info:
        raise ValueError(
            "agents_as_rows: env is not one of teams; pass vectorize(from_jaxmarl(...), num_envs)."
        )
    num_envs, num_agents = env.spec.num_envs, shape[0]

    def apart(tree: PyTree) -> PyTree:
        """`[N, A, ...]` to `[N A, ...]`."""
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)

    def to_each(column: Array) -> Array:
        """`[N]` to `[N A]`."""
        return (np if isinstance(column, np.ndarray) else jnp).repeat(column, num_agents)

    def by_agent(timestep: Timestep) -> Timestep:
        own = timestep.info["agent_reward"]
        return timestep._replace(
            obs=apart(timestep.obs),
            reward=apart(own),
            terminated=to_each(timestep.terminated),
            truncated=to_each(timestep.truncated),
            valid=to_each(timestep.valid),
            first=to_each(timestep.first),
            final_obs=apart(timestep.final_obs),
            info={"agent_done": apart(timestep.info["agent_done"])},
            reset_info={"agent_done": apart(timestep.reset_info["agent_done"])},
        )

    def reset(keys: Key, options: PyTree = None) -> tuple[PyTree, Timestep]:
        state, timestep = env.reset(keys[::num_agents], options)
        return state, by_agent(timestep)

    def reset_rows(
        state: PyTree, mask: Array, keys: Key | None = None, options: PyTree = None
    ) -> tuple[PyTree, Timestep]:
        team = mask.reshape(num_envs, num_agents).any(1)
        chosen = None if keys is None else keys[::num_agents]
        state, timestep = env.reset_rows(state, team, chosen, options)
        return state, by_agent(timestep)

    def step(state: PyTree, action: Action) -> tuple[PyTree, Timestep]:
        actions = jax.tree.map(
            lambda leaf: leaf.reshape(num_envs, num_agents, *leaf.shape[1:]), action
        )
        state, timestep = env.step(state, actions)
        return state, by_agent(timestep)

    spec = env.spec._replace(
        num_envs=num_envs * num_agents,
        observation_space=_one_of(env.spec.observation_space),
        action_space=_one_of(env.spec.action_space),
    )
    return BatchedEnv(reset, reset_rows, step, spec, env.end_rollout)


def _info_avals(env: BatchedEnv) -> Any:
    assert env.env is not None
    one = env.env
    opened = jax.eval_shape(lambda: one.reset(jax.random.PRNGKey(0), one.params)[2])
    return opened if isinstance(opened, dict) else {}


def _one_of(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Returns the space of one agent, of that of a team."""
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return spaces.Discrete(int(space.nvec[0]))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec[0])
    if isinstance(space, spaces.Box):
        return spaces.Box(space.low[0], space.high[0], dtype=space.dtype.type)
    raise ValueError(
        f"agents_as_rows: {space} cannot be taken apart; it must be a Box or MultiDiscrete."
    )


def _common_space(env: Any, agents: list[str], name: str) -> spaces.Space[Any]:
    """Returns the space that all agents share.

    Raises:
      ValueError: if they do not share one.
    """
    own = {agent: to_gymnasium_space(getattr(env, name)(agent)) for agent in agents}
    first = own[agents[0]]
    for agent, space in own.items():
        if space != first:
            raise ValueError(
                f"from_jaxmarl: {agent} has the {name} {space}, but {agents[0]} has {first}. Agents of one "
                "team must share it: pad them first."
            )
    return first
