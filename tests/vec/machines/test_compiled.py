"""No sequence of calls gives a wrong row or gets out of step: compiled environments and their layers."""

import pytest

from tests.vec.machines.compiled import JaxMachine
from tests.vec.machines.test_host import run

# Rewards may be infinite: NumPy says so where a layer learns from them, as under Stable-Baselines3.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")


class FreshMachine(JaxMachine):
    """Every example compiles its own VecEnv; it starts before any reset, and may be closed."""


class KeptMachine(JaxMachine):
    """Examples share VecEnvs, so that nothing is compiled again."""

    kept = {}  # noqa: RUF012  filled on the way


def test_calls_in_any_order_before_the_first_reset_and_after_close():
    run(FreshMachine, 1, 25)


def test_calls_in_any_order_over_compiled_rows():
    run(KeptMachine, 15, 40)


@pytest.mark.long
def test_many_sequences_before_the_first_reset_and_after_close():
    run(FreshMachine, 50, 50)


@pytest.mark.long
def test_thousands_of_sequences_over_compiled_rows():
    run(KeptMachine, 2000, 50)
