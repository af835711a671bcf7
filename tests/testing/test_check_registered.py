"""`check_env` on every environment that comes with jaxvec: all laws hold."""

import pytest

from jaxvec.envs import available, make
from jaxvec.testing import check_env

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize("name", available())
def test_every_registered_environment_holds_every_law(name):
    report = check_env(make(name), num_envs=4, num_steps=12)
    assert report.subject == name
    assert len(report.laws) == 10
