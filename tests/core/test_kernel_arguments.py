"""What no kernel or layer can work with, beside options: kinds of objects, dtypes, shapes of statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import (
    extract_key,
    frame_stack,
    init_moments,
    merge_moments,
    normalize_reward,
    scale_by_std,
    set_training,
    standardize,
    unstandardize,
    update_moments,
)
from jaxvec.core._transform import VecSpec

MOMENTS = init_moments((2,), "numpy")
FUNCTIONS = [update_moments, standardize, unstandardize, scale_by_std]


@pytest.mark.parametrize("shape", [(-1,), (2.5,), (True,), ("2",), -3, (2, None)])
def test_a_shape_that_no_sample_has_is_refused(shape):
    with pytest.raises(ValueError, match=r"init_moments: shape=.* a whole number from 0 on"):
        init_moments(shape, "numpy")


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("moments", [None, 3, (0, 1), {"mean": 0}], ids=str)
def test_what_are_no_moments_is_refused(function, moments):
    batch = np.zeros((3, 2))
    arguments = (moments, batch) if function is update_moments else (batch, moments)
    with pytest.raises(TypeError, match=rf"{function.__name__}: moments is .* RunningMoments"):
        function(*arguments)
    with pytest.raises(TypeError, match=r"merge_moments: other is .* RunningMoments"):
        merge_moments(MOMENTS, moments)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("batch", [[["a", "b"]], [[None, 1]], np.zeros((1, 2), "M8[s]")], ids=str)
def test_what_are_no_numbers_is_refused(function, batch):
    arguments = (MOMENTS, batch) if function is update_moments else (batch, MOMENTS)
    with pytest.raises(
        TypeError, match=rf"{function.__name__}: (x|batch) is of dtype .* of real numbers"
    ):
        function(*arguments)


def test_lists_of_numbers_are_taken_as_numpy_takes_them():
    listed, batch = [[1.0, 2.0], [3.0, 4.0]], np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(
        update_moments(MOMENTS, listed).mean, update_moments(MOMENTS, batch).mean
    )
    for function in (standardize, unstandardize, scale_by_std):
        np.testing.assert_array_equal(function(listed, MOMENTS), function(batch, MOMENTS))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_the_moments_say_who_computes(function, backend):
    moments, batch = init_moments((2,), backend), [[1.0, 2.0], [3.0, 4.0]]
    found = []
    for xp in (np, jnp):
        batch = xp.asarray(batch, np.float32)
        found.append(
            function(moments, batch).mean
            if function is update_moments
            else function(batch, moments)
        )
    assert type(found[0]) is type(found[1])
    assert isinstance(found[0], np.ndarray) is (backend == "numpy")
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_compiled_program_is_not_given_numpys_moments(function):
    def call(batch):
        arguments = (MOMENTS, batch) if function is update_moments else (batch, MOMENTS)
        return function(*arguments)

    with pytest.raises(
        TypeError, match=rf"{function.__name__}: (x|batch) is traced .* jax\.tree\.map"
    ):
        jax.jit(call)(jnp.ones((3, 2)))


@pytest.mark.parametrize("precision", ["half", None, 32])
def test_a_precision_that_does_not_exist_is_refused(precision):
    with pytest.raises(ValueError, match=r"update_moments: precision=.* 'float64', 'float32'"):
        update_moments(MOMENTS, np.zeros((1, 2)), precision=precision)
    with pytest.raises(ValueError, match=r"standardize: precision=.* 'float64', 'float32'"):
        standardize(np.zeros((1, 2)), MOMENTS, precision=precision)


@pytest.mark.parametrize("order", ["middle", 3, {"camera": "middle"}])
def test_an_order_of_channels_that_does_not_exist_is_refused_before_the_spaces_are_known(order):
    with pytest.raises(ValueError, match=r"frame_stack: channels_order=.*None, 'first', 'last'"):
        frame_stack(2, channels_order=order)


def test_a_key_that_no_dict_can_have_is_refused():
    with pytest.raises(TypeError, match=r"extract_key: key=\['state'\], but it must be ONE key"):
        extract_key(["state"])


@pytest.mark.parametrize("training", ["no", 1, None, jnp.ones(2, bool)])
def test_a_switch_is_set_to_true_or_false(training):
    spec = VecSpec(2, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), backend="numpy")
    with pytest.raises(ValueError, match=r"(?s)set_training: training=.* must be True or False"):
        set_training(normalize_reward().init(spec, None), training)


@pytest.mark.parametrize("xp", [np, jnp])
def test_complex_numbers_are_no_samples(xp):
    moments = init_moments((2,), "numpy" if xp is np else "jax")
    numbers = xp.ones((3, 2), np.complex64)
    with pytest.raises(TypeError, match="real numbers"):
        update_moments(moments, numbers)
    with pytest.raises(TypeError, match="real numbers"):
        standardize(numbers, moments)
