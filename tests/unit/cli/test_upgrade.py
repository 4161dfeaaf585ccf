from headrace.cli.upgrade import plan_upgrades
from headrace.client.features import Feature


def test_a_feature_is_raised_as_far_as_every_node_can_and_the_others_are_named() -> None:
    of_nodes = {
        1: {"metadata.version": Feature(29, 7, 30), "share.version": Feature(1, 0, 1)},
        2: {"metadata.version": Feature(29, 7, 32), "share.version": Feature(1, 0, 1)},
        3: {"metadata.version": Feature(29, 7, 31), "share.version": Feature(1, 0, 1)},
    }
    (plan,) = plan_upgrades(of_nodes)
    assert (plan.feature, plan.now, plan.to, plan.newest) == ("metadata.version", 29, 30, 32)
    assert plan.held_up_by == ["node 1 knows levels up to 30", "node 3 knows levels up to 31"]


def test_a_node_that_does_not_know_a_feature_holds_it_up() -> None:
    (plan,) = plan_upgrades({1: {"share.version": Feature(0, 0, 1)}, 2: {}})
    assert (plan.now, plan.to) == (0, 0)
    assert plan.held_up_by == ["node 2 knows levels up to 0"]


def test_levels_never_go_back() -> None:
    (plan,) = plan_upgrades({1: {"f": Feature(3, 0, 2)}, 2: {"f": Feature(3, 0, 4)}})
    assert (plan.now, plan.to, plan.newest) == (3, 3, 4)
    assert plan_upgrades({1: {"f": Feature(3, 0, 3)}}) == []
