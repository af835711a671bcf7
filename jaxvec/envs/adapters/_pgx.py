"""pgx's board games, cards and MinAtar: alone, for both sides in turn, or against a policy."""

import warnings
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from gymnasium import spaces

from jaxvec.core._arguments import check_one_of
from jaxvec.envs._env import Env
from jaxvec.envs.adapters._common import library, space_of_avals
from jaxvec.typing import Action, Array, Key, Obs, PyTree

Opponent = Callable[[Key, Any], Action]
"""`(key, state) -> action` of whoever is to move in pgx's state."""


def from_pgx(
    env: Any,
    opponent: Opponent | Literal["random"] | None = None,
    *,
    seat: int = 0,
    max_episode_steps: int | None = None,
) -> Env[Any, Any]:
    """Makes an environment of one of pgx.

    Legal actions are `info["action_mask"]` and `env_method("action_masks")`; an illegal one ends the
    game, as pgx has it.

    >>> import jaxvec
    >>> env = jaxvec.vectorize(jaxvec.envs.from_pgx("tic_tac_toe", "random"), 64)  # doctest: +SKIP

    Args:
      env: pgx's environment, or its id for `pgx.make`.
      opponent: who moves for all other seats until the turn comes back: a policy on pgx's state
        (`state.observation`, `state.legal_action_mask`), or "random" for a legal move. None leaves
        all seats to the one who acts: observation and mask are those of whoever is to move, the reward
        that of who just moved.
      seat: the player who acts, with an opponent. Who begins is pgx's to draw.
      max_episode_steps: the time limit that `vectorize` sets; pgx has none.

    Returns:
      The environment; its state is pgx's.

    Raises:
      MissingExtraError: if an id came and pgx is not installed.
      TypeError: if `env` is no environment of pgx.
      ValueError: if there is no such seat, or an opponent has nobody to play for.
    """
    if isinstance(env, str):
        env = library("from_pgx", "pgx", "pgx").make(env)
    if not callable(getattr(env, "init", None)) or not callable(getattr(env, "observe", None)):
        raise TypeError(
            f"from_pgx: env={env!r} has no init and observe. Pass what pgx.make(id) returns, or the id."
        )
    if opponent is not None and not (env.num_players > 1 and 0 <= seat < env.num_players):
        raise ValueError(
            f"from_pgx: seat={seat} and an opponent came, but {env.id} has {env.num_players} "
            "player(s). Leave the opponent out where there is one player, else give a seat below that."
        )
    if isinstance(opponent, str):
        check_one_of("from_pgx", "opponent", opponent, ("random",))
    other: Any = random_legal_move if opponent == "random" else opponent

    def until_turn(key: Key, state: Any, reward: Array) -> tuple[Any, Array]:
        """Lets the others move; returns the state of the next turn and the seat's summed rewards."""

        def waits(carry: Any) -> Array:
            _, state, _ = carry
            turn: Array = state.current_player == seat
            return ~(turn | state.terminated | state.truncated)

        def move(carry: Any) -> Any:
            key, state, reward = carry
            key, action_key, step_key = jax.random.split(key, 3)
            state = env.step(state, other(action_key, state), step_key)
            return key, state, reward + state.rewards[seat]

        _, state, reward = jax.lax.while_loop(waits, move, (key, state, reward))
        return state, reward

    def seen(state: Any) -> tuple[Obs, dict[str, Any]]:
        obs = state.observation
        if opponent is not None:  # at a game's end the turn may be another's
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                obs = env.observe(state, jnp.asarray(seat, state.current_player.dtype))
        return obs, {"action_mask": state.legal_action_mask}

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        del params
        key, other_key = jax.random.split(key)
        state = env.init(key)
        if opponent is not None:
            state, _ = until_turn(other_key, state, jnp.float32(0))
        return state, *seen(state)

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, Any, dict[str, Any]]:
        del params
        if opponent is None:
            after = env.step(state, action, key)
            reward = after.rewards[state.current_player]
        else:
            key, other_key = jax.random.split(key)
            after = env.step(state, action, key)
            after, reward = until_turn(other_key, after, after.rewards[seat].astype(jnp.float32))
        obs, info = seen(after)
        return after, obs, reward, after.terminated, after.truncated, info

    opened = jax.eval_shape(lambda: env.init(jax.random.PRNGKey(0)))
    return Env(
        reset=reset,
        step=step,
        params=None,
        observation_space=space_of_avals(opened.observation),
        action_space=spaces.Discrete(opened.legal_action_mask.shape[0]),
        max_episode_steps=max_episode_steps,
        methods={"action_masks": lambda state, params: state.legal_action_mask},
        metadata={"name": f"pgx:{env.id}"},
    )


def make(name: str, **options: Any) -> Env[Any, Any]:
    """Makes `pgx:ID`; options go to `from_pgx`."""
    env = library(f"make('pgx:{name}')", "pgx", "pgx").make(name)
    return from_pgx(env, **options)


def random_legal_move(key: Key, state: Any) -> Action:
    """Draws one of the legal moves of pgx's state, each as likely."""
    return jax.random.categorical(key, jnp.where(state.legal_action_mask, 0.0, -jnp.inf))
