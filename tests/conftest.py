"""Settings that every test shares."""

from hypothesis import settings

settings.register_profile("headrace", deadline=None)  # machines differ, results must not
settings.register_profile("quick", settings.get_profile("headrace"), max_examples=25)  # make check
settings.load_profile("headrace")
