"""Faults of each kind, as small changes of the source: planted, a test of the kind must fail.

A plant names the file in `jaxvec/`, the text to replace (it is there once) and what stands there instead, and
the one test, among those of the kind, that is to notice. `python -m tests.faults.plant` plants each in turn.
"""

from typing import NamedTuple

from tests.faults.table import FAULTS


class Plant(NamedTuple):
    """One fault."""

    id: str
    file: str  # below jaxvec/
    old: str
    new: str
    test: int = 0  # which of the kind's tests

    @property
    def node(self) -> str:
        """The test that is to fail."""
        return FAULTS[self.id].tests[self.test]


SERVE, HOST, CONVERT = "vec/_serve.py", "vec/_host.py", "vec/_convert.py"
ROWS, VECTORIZE, STACK = "envs/_rows.py", "envs/_vectorize.py", "core/_frame_stack.py"

PLANTS = [
    Plant(
        "A1.1",
        SERVE,
        """                write(columns.final, row, obs)
                obs, reset_info = _reset(env, row, self._sticky_of(row))
""",
        """                last, (obs, reset_info) = obs, _reset(env, row, self._sticky_of(row))
                write(columns.final, row, last)
""",
    ),
    Plant("A1.2", SERVE, "    return copy.deepcopy(dict(info))", "    return dict(info)"),
    Plant("A1.3", HOST, "            return obs.copy()", "            return obs"),
    Plant("A1.5", "vec/_infos.py", "            if place is not None:", "            if False:"),
    Plant(
        "A1.6",
        "vec/_normalization.py",
        "        final = standardize_on_host(final,",
        "        standardize_on_host(final,",
    ),
    Plant(
        "A1.7",
        STACK,
        "map_obs(push_final, state.stack, final)",
        "map_obs(push_final, stack, final)",
    ),
    Plant("A1.8", STACK, "step = math.prod(frame.shape[axis:])", "step = 1"),
    Plant("A1.9", STACK, "else np.flatnonzero(first)", "else np.arange(len(first))"),
    Plant(
        "A1.11",
        "core/_normalize.py",
        "        rows = None if all_rows(valid) else valid\n",
        "        rows = None\n",
        2,
    ),
    Plant("A1.13", HOST, "        self._forget_seeds_and_options(rows)\n", ""),
    Plant(
        "A1.14",
        "vec/_base.py",
        "return [deepcopy(options or {}) for _ in range(self.num_envs)]",
        "return deepcopy([options or {}] * self.num_envs)",
    ),
    Plant(
        "A1.16",
        "vec/_base.py",
        "return self._reset_columns(indices).obs",
        "return self._reset_columns(indices).obs, self.reset_infos",
    ),
    Plant(
        "A1.17",
        "vec/_wrapper.py",
        "        return self.venv.reset_infos",
        "        return [{} for _ in range(self.num_envs)]",
    ),
    Plant(
        "A2.1",
        SERVE,
        "truncated = not terminated and bool(truncated)",
        "truncated = bool(truncated)",
    ),
    Plant("A2.2", ROWS, "truncated = truncated | (steps >= self._limit)", "pass"),
    Plant(
        "A2.4",
        "vec/_infos.py",
        '        row["TimeLimit.truncated"] = truncated',
        '        row.update({"TimeLimit.truncated": truncated} if done else {})',
    ),
    Plant("A2.5", CONVERT, "done = np.array(dones, bool)", "done = np.asarray(dones)", 1),
    Plant(
        "A3.1",
        "vec/_channel.py",
        "    error = _rebuilt(fault)\n",
        "    error = EOFError()\n    return error\n",
    ),
    Plant(
        "A3.2",
        "vec/_running.py",
        "            worker.process.join(max(0.0, deadline - time.monotonic()))",
        "            worker.process.join()",
    ),
    Plant("A3.3", "vec/_running.py", "code = worker.process.exitcode", "code = None"),
    Plant(
        "A3.5",
        "vec/_channel.py",
        'raise TypeError(f"it cannot be pickled: {type(error).__name__}: {error}") from error',
        "raise EOFError from error",
    ),
    Plant(
        "A3.6",
        "vec/_worker.py",
        '            job.channel.send(dumps(fault_of(error, group.current, "__init__")))\n',
        "            del error\n",
    ),
    Plant("A3.8", CONVERT, "    if given != count:", "    if given < count:"),
    Plant(
        "A3.9",
        HOST,
        """        if self._pool.pending is not None:
            self._check_idle("step_async")
""",
        "",
    ),
    Plant(
        "A3.10",
        "vec/_worker_pool.py",
        "        while self._command is not None:\n            self.recv()",
        "        self._command = None",
    ),
    Plant(
        "A3.11",
        "vec/_processes.py",
        "        for worker in list(crew.workers):\n            if crew.status",
        "        for worker in list(crew.workers)[:1]:\n            if crew.status",
    ),
    Plant("A3.14", SERVE, "                env.close()", "                pass"),
    Plant(
        "A3.15",
        "vec/_worker.py",
        "    time.sleep(_GRACE)\n    os._exit(1)",
        "    time.sleep(1000)",
    ),
    Plant("A3.16", "vec/_worker.py", "    signal.signal(signal.SIGINT, lambda *_: None)\n", ""),
    Plant("A3.17", "vec/_running.py", '        if command == "__init__"', "        if False"),
    Plant(
        "A3.18",
        "vec/_starting.py",
        '"forkserver" if "forkserver" in known else "spawn"',
        '"fork" if "fork" in known else "spawn"',
    ),
    Plant(
        "A3.19", "vec/_results.py", "        if self.file_handler.closed:", "        if False:", 1
    ),
    Plant(
        "A3.23",
        "vec/_worker_pool.py",
        "        if self._closed_by is not None:\n            raise ClosedError(",
        "        if False:\n            raise ClosedError(",
    ),
    Plant(
        "A3.24",
        "vec/_answers.py",
        "            return Built(*spaces[0], odd=(row,",
        "            Built(*spaces[0], odd=(row,",
        1,
    ),
    Plant(
        "A3.25",
        "vec/_classic.py",
        "they should draw from `self.np_random`",
        "they all draw from it",
    ),
    Plant(
        "A4.1",
        "vec/_columns.py",
        '    yield "reward", ((num_envs,), np.dtype(np.float32))',
        '    yield "reward", ((num_envs,), np.dtype(np.float64))',
    ),
    Plant(
        "A4.2",
        "spaces/_values.py",
        "    if misfits is not None and misfits.any():",
        "    if False:",
    ),
    Plant("A4.3", "spaces/_values.py", "    if array.shape != shape:", "    if False:"),
    Plant(
        "A4.4",
        "spaces/_values.py",
        "    if array.shape != shape:",
        "    if array.shape not in (shape, ()):",
    ),
    Plant("A4.5", "vec/_columns.py", "array.reshape(()).item()", "array"),
    Plant(
        "A4.7",
        "core/_episode.py",
        "high, low = two_sum(total, carry + state.returns_low)",
        "high, low = total, state.returns_low",
    ),
    Plant(
        "A4.8",
        "core/_device_moments.py",
        "count, carry = two_sum(moments.count, added)",
        "count, carry = moments.count + added, 0 * added",
    ),
    Plant(
        "A4.9",
        "core/_device_moments.py",
        "    var = xp.maximum((deviations**2).sum(0) / divisor - offset**2, 0)",
        "    var = (rows**2).mean(0) - rows.mean(0) ** 2",
        1,
    ),
    Plant(
        "A4.10",
        "core/_host_moments.py",
        'if dtype.kind == "f" and dtype.itemsize >= 4 and',
        'if dtype.kind == "f" and dtype.itemsize >= 2 and',
    ),
    Plant("A4.11", "core/_moments.py", "PRIOR_COUNT = 1e-4", "PRIOR_COUNT = 1e-9"),
    Plant("A4.12", "vec/_wrappers.py", "        if np.isnan(value).any():", "        if False:"),
    Plant(
        "A4.13",
        "core/_moments.py",
        "return x * np.sqrt(moments.var + epsilon) + moments.mean",
        "return (x * np.sqrt(moments.var + epsilon) + moments.mean).astype(np.float32)",
    ),
    Plant(
        "A4.14", "vec/_normalization.py", "    if is_integer_or_bool(box.dtype):", "    if False:"
    ),
    Plant(
        "A4.15",
        "core/_normalize.py",
        "init_statistics(spec, box.shape, update)",
        "init_statistics(spec, (), update)",
    ),
    Plant(
        "A4.16", STACK, "return spec._replace(observation_space=tree_space(stacked))", "return spec"
    ),
    Plant("A4.17", ROWS, "        if (held != action).any():", "        if False:"),
    Plant(
        "A4.20",
        "vec/_call.py",
        "host = [call.copy(buffer) for buffer in self._every]",
        "host = [np.asarray(buffer) for buffer in self._every]",
    ),
    Plant(
        "A5.1",
        "vec/_normalization.py",
        "        if all(new[key] is tree[key] for key in new):",
        "        space.spaces.update(new)\n        if all(new[key] is tree[key] for key in new):",
    ),
    Plant(
        "A5.2",
        "vec/_normalization.py",
        "        if not settings.norm_obs:\n            return spec",
        "        if not settings.norm_obs:\n            space = _normalized_space(space.spaces, 1.0)",
    ),
    Plant(
        "A5.3",
        "vec/_normalize.py",
        "        return deepcopy(self.old_obs)",
        "        return deepcopy(self.normalize_obs(self.old_obs))",
    ),
    Plant(
        "A5.4",
        "core/_normalize.py",
        "        state = count(state, timestep.obs, mask)\n        return",
        "        return",
    ),
    Plant("A5.5", "vec/_normalization.py", "    if training:", "    if True:"),
    Plant(
        "A5.6",
        "vec/_normalize.py",
        '    if inner is not None and getattr(inner, f"norm_{what}"):',
        "    if False:",
    ),
    Plant(
        "A5.7",
        "vec/_normalization.py",
        "scale_on_host(reward, return_moments.var,",
        "scale_on_host(reward - return_moments.mean, return_moments.var,",
        1,
    ),
    Plant("A5.8", "vec/_normalization.py", "        returns[first] = 0\n", ""),
    Plant("A5.11", "vec/_normalize.py", "        check_fits(saved, venv.observation_space)\n", ""),
    Plant(
        "A5.12",
        "vec/_pickles.py",
        "        if (module_name, global_name) not in ALLOWED:",
        "        if False:",
    ),
    Plant("A5.13", "vec/_sync.py", "        if isinstance(env, normalize):", "        if False:"),
    Plant(
        "A5.15",
        "core/_normalize.py",
        "init_statistics(spec, box.shape, update)",
        "init_statistics(spec, (spec.num_envs, *box.shape), update)",
    ),
    Plant(
        "A5.16",
        "core/_device_moments.py",
        "    var = ((var + apart) * size).sum(0) / divisor",
        "    var = (var * size).sum(0) / divisor",
    ),
    Plant(
        "A6.1",
        "vec/_monitor.py",
        "        for key in self.info_keywords:",
        "        for key in ():",
    ),
    Plant(
        "A6.3",
        "vec/_make.py",
        "filename = None if folder is None else folder / str(self._rank)",
        'filename = None if folder is None else folder / "monitor"',
    ),
    Plant(
        "A6.4",
        "vec/_results.py",
        """self.file_handler.write(f"#{json.dumps(header or {})}\\n")""",
        """self.file_handler.write(f"#{json.dumps(header or {})}\\r\\n")""",
    ),
    Plant("A6.5", "vec/_results.py", "    if not filled:", "    if False:"),
    Plant(
        "A6.7",
        "vec/_monitor.py",
        "any(any(venv.env_is_wrapped(kind)) for",
        "any(venv.env_is_wrapped(kind)[0] for",
    ),
    Plant("A6.8", "vec/_monitor_env.py", "        if self.needs_reset:", "        if False:"),
    Plant(
        "A6.9",
        "vec/_monitor.py",
        '"t": np.full(self.num_envs, elapsed)}',
        '"t": np.full(self.num_envs, elapsed)}\n        episode["l"] = episode["l"][::-1]',
    ),
    Plant("A6.10", "vec/_monitor.py", "    except AttributeError:", "    except KeyError:"),
    Plant(
        "A6.11",
        "vec/_normalization.py",
        "        obs,\n        reward,\n    )\n    return",
        "        obs,\n        reward,\n    )\n    scaled_reward = reward\n    return",
    ),
    Plant(
        "A6.12",
        "core/_episode.py",
        "        returns[rows] = 0\n",
        "        returns *= 1 - rows.astype(int)\n",
    ),
    Plant(
        "A6.13",
        "vec/_infos.py",
        "            if done or key not in _ONLY_WHERE_DONE:",
        "            if True:",
    ),
    Plant(
        "A7.1",
        "vec/_base.py",
        "        self._seeds = seeds_of_rows(seed, mode, self._row_numbers())\n",
        "        self._seeds = seeds_of_rows(seed, mode, self._row_numbers())\n"
        "        self.reset()\n",
    ),
    Plant("A7.2", "vec/_utils.py", "[index(seed) + row for row", "[index(seed) for row"),
    Plant(
        "A7.3",
        "vec/_utils.py",
        ">> 1 for child in children]",
        ">> 1 for child in children[:1] * len(rows)]",
    ),
    Plant(
        "A7.5",
        "vec/_make.py",
        "            env.action_space.seed(recipe.seed + self._rank)",
        "            pass",
    ),
    Plant(
        "A7.6",
        SERVE,
        '            obs, info = _reset(env, row, {**given, "seed": seed})',
        "            obs, info = _reset(env, row, given)",
    ),
    Plant("A7.7", SERVE, 'env.unwrapped if where == "unwrapped" else env', "env"),
    Plant(
        "A7.8",
        "vec/_indices.py",
        "    if isinstance(indices, int | np.integer | np.bool_):",
        "    if isinstance(indices, int):",
    ),
    Plant("A7.9", "vec/_wrapper.py", "        if hidden is not None:", "        if False:"),
    Plant("A7.10", SERVE, "            if other != row:", "            if False:"),
    Plant(
        "A7.11",
        "vec/_answers.py",
        "    return (cloudpickle.loads(env_fn) if",
        "    env_fn = _made.__dict__.setdefault('first', env_fn)\n    return (cloudpickle.loads(env_fn) if",
    ),
    Plant(
        "A7.12",
        "spaces/_batch.py",
        "low, high = space.start, space.start + (space.n - 1)",
        "low, high = 0, space.n - 1",
        4,
    ),
    Plant("A7.13", "vec/_columns.py", "    if None in parts:\n", "    if False:\n"),
    Plant(
        "A7.14",
        "spaces/_values.py",
        "        taken = [(key, part, value[key]) for key, part in parts.items()]",
        "        taken = [(key, part, value.get(key, 0 * value['a'])) for key, part in parts.items()]",
    ),
    Plant(
        "A7.15",
        "vec/_actions.py",
        "    if given.shape != shape:",
        "    given = given.reshape(shape)\n    if False:",
    ),
    Plant("A8.1", "core/_images.py", "    return smallest == 0", "    return False"),
    Plant("A8.2", "core/_images.py", "    if smallest == 1:", "    if False:"),
    Plant(
        "A8.3",
        STACK,
        "return 0 if is_image_space(space) and is_channels_first(space) else -1",
        "return -1",
    ),
    Plant(
        "A8.5",
        "vec/_video.py",
        "        self.num_frames += 1",
        "        self.num_frames += 1\n        self.__dict__.setdefault('frames', []).append(frame)",
    ),
    Plant(
        "A8.6",
        "vec/_video.py",
        "self._finalizer = weakref.finalize(self, self._writer.close)",
        'self._finalizer = globals().setdefault("kept", self._writer).close',
    ),
    Plant("A8.7", "vec/_video.py", "        if self.env_index is None:", "        if True:"),
    Plant(
        "A8.8",
        "vec/_utils.py",
        "    cells = np.zeros((rows * columns,",
        "    cells = np.ones((rows * columns,",
    ),
    Plant(
        "A9.1",
        VECTORIZE,
        "    return jax.vmap(jax.random.fold_in)(keys, 2 * clock + 1)",
        "    return jax.vmap(jax.random.fold_in)(keys, 0 * clock + 1)",
    ),
    Plant(
        "A9.2",
        VECTORIZE,
        "        steps=jnp.where(restart, 0, stepped.steps),",
        "        steps=stepped.steps,",
    ),
    Plant("A9.4", ROWS, "jnp.asarray(reward).astype(jnp.float32).reshape(())", "reward"),
    Plant(
        "A9.5",
        ROWS,
        "                cast(state, self._env_dtypes),\n                cast(obs",
        "                state,\n                cast(obs",
    ),
    Plant(
        "A9.6",
        VECTORIZE,
        "        keys = jax.vmap(jax.random.fold_in)(state.keys, 2 * state.clock)",
        "        keys = jax.vmap(jax.random.fold_in)(state.keys, 2 * state.clock + 1)",
    ),
    Plant(
        "A9.7",
        ROWS,
        '        keys = as_impl(keys, "threefry2x32" if self.key_kind == "raw" else self.key_kind)\n',
        "",
    ),
    Plant(
        "A9.8",
        ROWS,
        "reward=stepped.reward + jnp.where(over, 0, again.reward)",
        "reward=stepped.reward + again.reward",
    ),
    Plant(
        "A9.9",
        VECTORIZE,
        "        terminated=stepped.terminated,\n        truncated=stepped.truncated,\n        # NumPy's",
        "        terminated=stepped.terminated & ~restart,\n        truncated=stepped.truncated,\n"
        "        # NumPy's",
    ),
    Plant(
        "A9.10",
        ROWS,
        "        opening: Opening = jax.vmap(one, (0, axes))(keys, params)",
        "        opening: Opening = jax.lax.map(lambda key: one(key, params), keys)",
    ),
    Plant(
        "A9.11",
        VECTORIZE,
        "        if mode == AutoresetMode.DISABLED:\n            return",
        "        if False:\n            return",
    ),
    Plant("A9.12", VECTORIZE, "    raise causes[0]", '    raise ValueError("it cannot be traced")'),
    Plant(
        "A9.15",
        VECTORIZE,
        "        info=opening.info,\n        reset_info",
        "        info={},\n        reset_info",
    ),
    Plant(
        "A9.16",
        "envs/adapters/_func_env.py",
        "            observation(after, keys[1], params),",
        "            observation(state, keys[1], params),",
    ),
]
