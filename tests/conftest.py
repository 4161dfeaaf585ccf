"""Settings that every test shares."""

import pytest
from hypothesis import settings

from tests.librdkafka import use_closing_consumers

use_closing_consumers()  # before tests import them
pytest.register_assert_rewrite("tests.differential.pairs")  # scripts that assert, as tests do

settings.register_profile("headrace", deadline=None)  # machines differ, results must not
settings.register_profile("quick", settings.get_profile("headrace"), max_examples=25)  # make check
settings.load_profile("headrace")
