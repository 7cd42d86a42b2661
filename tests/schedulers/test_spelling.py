import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import SchedulerError
from ganger.schedulers import (
    F1,
    SCHEDULERS,
    Fair,
    Fcfs,
    KShortest,
    Srpt,
    WeightedFair,
    parse_scheduler,
    parse_schedulers,
)


@pytest.mark.parametrize(
    ("text", "scheduler"),
    [
        ("fair", Fair()),
        ("fair:source=capped", Fair(source="capped")),
        ("wfair:alpha=-0.5", WeightedFair(alpha=-0.5)),
        ("kshortest:k=2", KShortest(k=2)),
        ("fcfs:backfill=easy", Fcfs(backfill="easy")),
        ("f1:backfill=conservative", F1(backfill="conservative")),
        ("srpt:cap=sqrt,c=1", Srpt(cap="sqrt", c=1.0)),
        (
            "srpt:cap=useful,c=0.2,a=0.25,source=capped,leftover=idle",
            Srpt(cap="useful", c=0.2, a=0.25, source="capped", leftover="idle"),
        ),
    ],
)
def test_a_spelling_names_a_scheduler_and_is_printed_back(text, scheduler):
    assert parse_scheduler(text) == scheduler
    assert str(scheduler) == text


def test_defaults_may_be_spelled_and_are_not_printed():
    assert str(parse_scheduler("kshortest:k=3")) == "kshortest"
    assert parse_scheduler(" srpt : cap = none ") == Srpt()


@given(
    c=st.floats(1e-6, 1e6),
    a=st.floats(0, 1),
    source=st.sampled_from(["first", "capped", "ordered"]),
    leftover=st.sampled_from(["idle", "first"]),
)
def test_every_number_survives_the_spelling(c, a, source, leftover):
    scheduler = Srpt(cap="useful", c=c, a=a, source=source, leftover=leftover)
    assert parse_scheduler(str(scheduler)) == scheduler


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_name_alone_is_a_scheduler_and_its_own_spelling(name):
    assert str(parse_scheduler(name)) == name


def test_a_list_keeps_parameters_with_their_scheduler():
    assert [str(s) for s in parse_schedulers("fair,srpt:cap=sqrt,c=2,fifo,kshortest:k=2")] == [
        "fair",
        "srpt:cap=sqrt,c=2",
        "fifo",
        "kshortest:k=2",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "best",
            "there are fifo, fair, wfair, srpt, cpf, drf, tetris, kshortest, random, fcfs",
        ),
        ("", "there are fifo"),
        ("fifo:cap=3", "no parameter 'cap'; it has none"),
        ("fair:cap=3", "no parameter 'cap'; it has source"),
        ("fair:source=last", "source is 'last'; expected first or capped"),
        ("wfair:alpha=big", "alpha is 'big'; expected a number"),
        ("wfair:alpha=nan", "alpha is nan; expected -5 to 5"),
        ("wfair:alpha=inf", "alpha is inf"),
        ("kshortest:k=2.5", "k is '2.5'; expected a whole number"),
        ("kshortest:k=0", "k is 0; expected 1 to"),
        ("srpt:cap=sqrt,c=0", "c is 0.0; expected 1e-06 to"),
        ("srpt:cap=useful,a=1.5", "a is 1.5; expected 0 to 1"),
        ("srpt:cap=sqrt,a=0.5", "a belongs to cap=useful"),
        ("srpt:c=3", "c is the size of a cap"),
        ("srpt:cap=sqrt,c=1,c=2", "expected c=VALUE, once"),
        ("srpt:cap", "expected cap=VALUE, once"),
        ("sjf:backfill=yes", "backfill is 'yes'; expected none or easy or conservative"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_work(text, message):
    with pytest.raises(SchedulerError) as error:
        parse_scheduler(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_wrong_word_is_refused_in_python_too():
    with pytest.raises(SchedulerError, match="expected idle or first"):
        WeightedFair(leftover="all")  # type: ignore[arg-type]


def test_names_are_those_of_the_classes():
    assert {name: scheduler.name for name, scheduler in SCHEDULERS.items()} == {
        name: name for name in SCHEDULERS
    }
