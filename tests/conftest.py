"""Settings that every test shares."""

from hypothesis import settings

settings.register_profile("headrace", deadline=None)  # machines differ, results must not
settings.load_profile("headrace")
