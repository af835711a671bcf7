"""Masks of `sample`: what they forbid is never drawn, what they leave is drawn evenly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from scipy import stats

from jaxvec.spaces import sample

KEY = jax.random.key(0)
LEVEL = 1e-6  # of every statistical test: a false alarm in a million runs


def draw(space, n, mask):
    return jax.tree.map(np.asarray, jax.jit(lambda key: sample(key, space, n, mask))(KEY))


def test_an_element_that_the_mask_forbids_is_never_drawn():
    mask = np.int8([0, 1, 0, 1, 1])
    draws = draw(Discrete(5, start=10), 3000, mask)
    counts = np.bincount(draws - 10, minlength=5)
    assert counts[[0, 2]].tolist() == [0, 0]
    assert stats.chisquare(counts[[1, 3, 4]]).pvalue > LEVEL


def test_every_row_has_its_own_mask():
    masks = np.int8([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert draw(Discrete(3, start=4), 4, masks).tolist() == [4, 5, 6, 4]


def test_masks_may_be_traced_and_of_bools():
    draws = jax.jit(lambda key, mask: sample(key, Discrete(3), 500, mask))(
        KEY, jnp.array([True, False, True])
    )
    assert set(np.asarray(draws).tolist()) == {0, 2}


def test_a_mask_over_many_elements_is_uniform_too():
    mask = np.zeros(5000, np.int8)
    mask[2000:4500] = 1
    draws = draw(Discrete(5000), 4000, mask)
    assert stats.kstest((draws + 0.5 - 2000) / 2500, "uniform").pvalue > LEVEL


def test_masks_of_a_multidiscrete_are_nested_as_it_is():
    space = MultiDiscrete([[2, 3], [4, 1]], start=[[0, 10], [20, 30]])
    mask = (
        (np.int8([0, 1]), np.int8([1, 0, 1])),
        (np.int8([0, 0, 0, 0]), np.int8([1])),
    )
    draws = draw(space, 300, mask)
    assert [sorted(set(draws[:, i, j].tolist())) for i in range(2) for j in range(2)] == [
        [1],
        [10, 12],
        [20],
        [30],
    ]


def test_a_multibinary_mask_gives_the_value_or_leaves_it_free():
    draws = draw(MultiBinary(3), 300, np.int8([0, 1, 2]))
    assert set(draws[:, 0].tolist()) == {0}
    assert set(draws[:, 1].tolist()) == {1}
    assert set(draws[:, 2].tolist()) == {0, 1}


def test_masks_of_containers_may_leave_parts_out():
    space = Dict(a=Discrete(3), b=Tuple([Discrete(2), Box(0, 1)]))
    draws = draw(space, 100, {"a": np.int8([0, 0, 1]), "b": (np.int8([1, 0]), None)})
    assert set(draws["a"].tolist()) == {2}
    assert set(draws["b"][0].tolist()) == {0}


BAD_MASKS = {
    "for a Box": (Box(0, 1), np.int8([1]), ValueError, "None for a Box"),
    "of another shape": (Discrete(3), np.int8([1, 0]), ValueError, r"shape \(2,\)"),
    "of another number of rows": (Discrete(3), np.ones((5, 3), np.int8), ValueError, r"\(2, 3\)"),
    "of floats": (Discrete(3), np.ones(3), TypeError, "int8 or bool"),
    "that is a list": (Discrete(3), [1, 1, 1], TypeError, "int8 or bool"),
    "of other values": (Discrete(3), np.int8([0, 1, 2]), ValueError, r"\(0, 1\) only"),
    "of other values, on a device": (
        Discrete(3),
        jnp.int8([2, 2, 2]),
        ValueError,
        r"\(0, 1\) only",
    ),
    "of other coins": (MultiBinary(2), np.int8([3, 0]), ValueError, r"\(0, 1, 2\) only"),
    "that is no tuple": (MultiDiscrete([2, 2]), np.int8([1, 1]), TypeError, "tuple of masks"),
    "with too few parts": (MultiDiscrete([2, 2]), (np.int8([1, 1]),), ValueError, "1 parts"),
    "that is no dict": (Dict(a=Discrete(2)), np.int8([1, 1]), TypeError, "dict of masks"),
    "without a key": (Dict(a=Discrete(2)), {}, ValueError, "keys"),
    "without a part": (Tuple([Discrete(2)]), (), ValueError, "0 parts"),
}


@pytest.mark.parametrize("case", BAD_MASKS.values(), ids=BAD_MASKS)
def test_a_mask_that_does_not_fit_is_refused(case):
    space, mask, error, words = case
    with pytest.raises(error, match=words):
        sample(KEY, space, 2, mask)
