"""The states of share partitions (APIs 83 to 87): answers, and the records behind them."""

from headrace.wire.messages import write_share_group_state_request
from headrace.wire.messages.write_share_group_state_response import WriteShareGroupStateResponse
from tests.differential.conversation import Conversation
from tests.differential.plain import MADE_UP_ID
from tests.differential.requests import delete
from tests.differential.share_state_requests import Share, keep_log, share_states, state_log

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
UPDATES_A_SNAPSHOT = 500


def share_states_refused(talk: Conversation) -> None:
    topic = talk.topic("t", 2)
    share = Share(talk.name("g"), topic.id)
    share_states(talk, share)
    for what, asked, index in (
        ("a state that nobody began", share, 0),
        ("no group", Share("", topic.id), 0),
        ("an unknown topic", Share(share.group, MADE_UP_ID), 0),
        ("no topic id", Share(share.group, bytes(16)), 0),
        ("an unknown partition", share, 9),
        ("a negative partition", share, -1),
        ("no group and a negative partition", Share("", topic.id), -1),
    ):
        talk.ask(f"read {what}", asked.read(0, index))
        talk.ask(f"read {what}, any epoch", asked.read(-1, index))
        talk.ask_all_versions(f"sum up {what}", asked.summary(0, index))
        write = asked.write((0, 1, ACKNOWLEDGED, 1), start=0, partitions=(index,))
        talk.ask_all_versions(f"write {what}", write)
        talk.ask(f"delete {what}", asked.delete(index))
        if asked is not share or index:
            talk.ask(f"begin {what}", asked.initialize(0, 0, index))
    module = write_share_group_state_request
    talk.ask("no topics", module.WriteShareGroupStateRequest(share.group))
    empty = module.WriteStateData(topic.id, [])
    talk.ask("no partitions", module.WriteShareGroupStateRequest(share.group, [empty]))
    keep_log(talk, "nothing is written", share)


def share_states_fenced(talk: Conversation) -> None:
    share = Share(talk.name("g"), talk.topic("t").id)
    share_states(talk, share)
    for epoch, start in ((5, 100), (5, 101), (4, 102), (-1, 103), (6, -1)):
        talk.ask(f"begin in epoch {epoch}", share.initialize(epoch, start))
        talk.ask(f"summary after epoch {epoch}", share.summary(0))
    for epoch in (0, 3, 3, 2, -1):
        talk.ask(f"read in leader epoch {epoch}", share.read(epoch))
        talk.ask(f"summary after leader epoch {epoch}", share.summary(epoch))
    for leader_epoch in (2, 3, 4, -1):
        for state_epoch in (5, 6, 7, -1):
            what = f"leader epoch {leader_epoch}, state epoch {state_epoch}"
            write = share.write(
                start=10, complete=0, leader_epoch=leader_epoch, state_epoch=state_epoch
            )
            talk.ask(f"write in {what}", write)
    talk.ask("summary after writes", share.summary(0))
    talk.ask("begin again", share.initialize(7, 5))
    talk.ask("what a new beginning leaves", share.summary(0))
    keep_log(talk, "what is written", share)


def share_states_merged(talk: Conversation) -> None:
    share = Share(talk.name("g"), talk.topic("t").id)
    share_states(talk, share)
    talk.ask("begin", share.initialize(0, 10))
    for what, write in (
        (
            "batches in any order",
            share.write(
                (10, 19, AVAILABLE, 1),
                (15, 25, ACKNOWLEDGED, 1),
                (5, 12, ARCHIVED, 2),
                (40, 41, ACKNOWLEDGED, 1),
                (30, 31, ACKNOWLEDGED, 1),
                (32, 33, ACKNOWLEDGED, 1),
                complete=7,
            ),
        ),
        ("inside of another", share.write((20, 21, AVAILABLE, 2))),
        ("over several", share.write((12, 45, ARCHIVED, 1))),
        ("fewer deliveries", share.write((10, 50, ACKNOWLEDGED, 0), complete=3)),
        ("the same again", share.write((10, 50, ACKNOWLEDGED, 0), complete=3)),
        ("a start that trims", share.write(start=17)),
        ("a start with batches before it", share.write((10, 18, ARCHIVED, 5), start=18)),
        ("a start that goes back", share.write((12, 13, AVAILABLE, 1), start=12, complete=2)),
        ("a start behind everything", share.write(start=1000, complete=0)),
    ):
        talk.ask(what, write)
        talk.ask(f"read after {what}", share.read(0))
        talk.ask(f"summary after {what}", share.summary(0))
    talk.ask("version 0", share.write((1001, 1001, ACKNOWLEDGED, 1), start=1000), 0)
    talk.ask_all_versions("summary after version 0", share.summary(0))
    keep_log(talk, "what is written", share)


def share_states_snapshots(talk: Conversation) -> None:
    share = Share(talk.name("g"), talk.topic("t").id)
    share_states(talk, share)
    talk.ask("begin", share.initialize(0, 0))
    talk.ask("take over", share.read(1))
    for offset in range(UPDATES_A_SNAPSHOT + 3):
        batch = (offset, offset, ACKNOWLEDGED, 1 + offset % 3)
        write = share.write(batch, start=offset // 2, complete=offset - offset // 2)
        talk.quietly(write, WriteShareGroupStateResponse)
    talk.ask("summary", share.summary(1))
    keep_log(talk, "one snapshot after so many updates", share)


def share_states_deleted(talk: Conversation) -> None:
    topic, other = talk.topic("t", 3), talk.topic("u")
    share, second = Share(talk.name("g"), topic.id), Share(talk.name("g"), other.id)
    share_states(talk, share)
    talk.ask("begin three", share.initialize(1, 7, 0, 1, 2))
    talk.ask("begin one twice", share.initialize(2, 8, 2, 2))
    talk.ask("begin another topic", second.initialize(1, 9))
    talk.ask("write two, one twice", share.write(start=9, complete=0, partitions=(0, 1, 1)))
    talk.ask("read three", share.read(0, 0, 1, 2))
    talk.ask("delete two, one twice", share.delete(0, 1, 1))
    talk.ask("delete again", share.delete(0))
    talk.ask("read a deleted one", share.read(0, 0, 2))
    talk.ask("sum up a deleted one", share.summary(0, 0, 2))
    talk.ask("begin a deleted one", share.initialize(0, 3, 0))
    talk.ask("summary", share.summary(0, 0, 1, 2))
    talk.ask("delete all but one, which the topic takes with it", share.delete(0, 1))
    keep_log(talk, "what is written", share)
    written = len(state_log(talk, share))
    talk.ask("delete the topic", delete(topic.name))
    talk.gone(topic.name)
    talk.until_so(lambda: len(state_log(talk, share)) > written)
    keep_log(talk, "what is written when the topic is gone", share)
    talk.ask("read what is gone", share.read(9, 0, 2))
    talk.ask("sum up what is gone", share.summary(0, 0, 2))
    talk.ask("delete what is gone", share.delete(0, 2))
    talk.ask("what stays", second.summary(0))


SCRIPTS = (
    share_states_refused,
    share_states_fenced,
    share_states_merged,
    share_states_snapshots,
    share_states_deleted,
)
