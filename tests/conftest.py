"""For all tests: how slow this machine is decides nothing."""

from hypothesis import Phase, settings

settings.register_profile("any-machine", deadline=None)
# for scripts.break_contracts: that an example fails is all it wants to know
settings.register_profile("unshrunk", deadline=None, phases=[Phase.explicit, Phase.generate])
settings.load_profile("any-machine")
