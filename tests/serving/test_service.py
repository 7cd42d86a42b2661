"""The HTTP service: what it answers, and what it refuses, with the reason."""

import contextlib
import json
import threading
import time

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from ganger.errors import ConfigError
from ganger.schedulers import Fair
from ganger.serving.asking import SMALL
from ganger.serving.guard import Answer, GuardConfig
from ganger.serving.metrics import Metrics
from ganger.serving.records import Records, Round
from ganger.serving.rounds import decide_round, executors_given
from ganger.serving.service import Service, ServiceConfig, is_loopback, openapi
from ganger.serving.web import WebServer
from ganger.simulator.observation import Observation

TOKEN = "a-secret-of-some-length"
BODY = msgspec.json.encode(SMALL)


class Here:
    """A guard that decides in this process."""

    def __init__(self, busy_s=0.0):
        self.process = self
        self.ready = True
        self.busy_s = busy_s

    def decide(self, observation):
        time.sleep(self.busy_s)
        decisions = tuple(decide_round(Fair().decide, observation))
        given = tuple(executors_given(observation, decisions))
        fallback = "late" if observation.version == 99 else None
        return Answer(observation.version, decisions, given, "fair", 0.001, fallback)


def service(guard=None, records=None, token=None, **settings):
    config = ServiceConfig(**settings)
    return Service(guard or Here(), config, Metrics(), records or Records(None), token)


@contextlib.contextmanager
def client_of(served):
    with (
        WebServer(served.application(), "127.0.0.1", 0) as server,
        httpx.Client(base_url=server.url, timeout=10) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    with client_of(service()) as client:
        yield client


def test_an_observation_gets_the_decisions_of_its_round(client):
    reply = client.post("/decide", content=BODY)
    assert reply.status_code == 200
    answer = msgspec.json.decode(reply.content, type=Answer)
    assert answer.decisions == tuple(decide_round(Fair().decide, SMALL))
    assert answer.executors == (2,)


def change(**fields):
    return msgspec.json.encode(replace(SMALL, **fields))


def change_stage(**fields):
    job = SMALL.jobs[0]
    stages = (replace(job.stages[0], **fields),)
    return msgspec.json.encode(replace(SMALL, jobs=(replace(job, stages=stages),)))


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "truncated"),
        (b"{", 400, "truncated"),
        (b"\xff\xfe", 400, "malformed"),
        (b"[" * 100_000, 422, "Expected `object`"),
        (b'{"version":' + b"[" * 100_000, 422, "Expected `int`"),
        (b'{"x":' + b"[" * 100_000, 400, ""),
        (b"null", 422, "Expected `object`"),
        (b"{}", 422, "missing required field `version`"),
        (BODY.replace(b'"tasks":4', b'"tasks":"4"', 1), 422, "Expected `int`"),
        (BODY.replace(b'"tasks":4', b'"tasks":1e999', 1), 422, "out of range"),
        (BODY.replace(b'"tasks":4', b'"tasks":99999999999999999999', 1), 422, ""),
        (BODY.replace(b'"id":"a"', b'"id":"\\ud800"', 1), 400, ""),
        (change(executors=0), 422, "executors is 0; expected 1 to 100000"),
        (change(executors=10**9), 422, "executors is 1000000000"),
        (change(on_offer=5), 422, "on_offer is 5; expected 0 to 4"),
        (change(idle=-1), 422, "idle is -1"),
        (change(version=-1), 422, "version is -1"),
        (change(source_job="c"), 422, "source_job is 'c'; there is no such job"),
        (change(source_stage="0"), 422, "source_stage is given without source_job"),
        (change(source_job="a"), 422, "on_offer, of source_job 'a', is 2; expected 0 to 0"),
        (change(on_offer=0, source_job="a", source_stage="9"), 422, "'a' has no such stage"),
        (change(executor_class=64), 422, "executor_class is 64"),
        (change(jobs=SMALL.jobs[:1] * 2), 422, "two jobs have the same id"),
        (change(jobs=(replace(SMALL.jobs[0], stages=()),)), 422, "job 'a' has no stages"),
        (change(jobs=(replace(SMALL.jobs[0], supply=9),)), 422, "job 'a': supply is 9"),
        (change_stage(tasks=0), 422, "job 'a', stage '0': tasks is 0"),
        (change_stage(launched=5), 422, "launched is 5; expected 0 to 4"),
        (change_stage(finished=1), 422, "finished is 1; expected 0 to 0"),
        (change_stage(committed=-1), 422, "committed is -1"),
        (change_stage(estimated_task_s=-1.0), 422, "estimated_task_s is -1.0; expected 0 or more"),
        (change_stage(launched=4), 422, "is schedulable, but could use no executor"),
        (change_stage(parents=("9",)), 422, "its parent '9' does not come before it"),
        (change_stage(gang=True), 422, "is a gang of 4 and schedulable; 2 are on offer"),
    ],
)
def test_what_is_no_observation_is_refused_with_the_reason(client, body, status, said):
    reply = client.post("/decide", content=body)
    assert reply.status_code == status, reply.text
    assert said in reply.json()["error"]
    assert client.post("/decide", content=BODY).status_code == 200, "it goes on"


def test_any_change_of_one_number_is_answered_or_refused(client):
    """Whatever passes the checks can be decided: nothing but a 200 or a 422 with its reason."""
    plain = msgspec.json.decode(BODY)

    def places(value, path=()):
        if isinstance(value, dict | list):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in pairs:
                yield from places(inner, (*path, key))
        else:
            yield path

    seen = set()
    for path in places(plain):
        for wrong in (-1, 0, 1, 3, 10**6, 2**31, 2**63, 1.5, True, None, "", "a", [], {}):
            changed = json.loads(BODY)
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = wrong
            reply = client.post("/decide", content=json.dumps(changed))
            assert reply.status_code in (200, 422), (path, wrong, reply.text)
            seen.add(reply.status_code)
    assert seen == {200, 422}


def test_other_paths_and_methods(client):
    assert client.get("/decide").status_code == 405
    assert client.post("/nothing", content=BODY).status_code == 404
    assert "GET /nothing" in client.get("/nothing").json()["error"]
    assert client.get("/health").json()["scheduler_ready"] is True


def test_a_token_is_demanded_everywhere():
    right = {"Authorization": f"Bearer {TOKEN}"}
    with client_of(service(token=TOKEN)) as client:
        check_token_of(client, right)


def check_token_of(client, right):
    for path in ("/", "/metrics", "/health", "/openapi.json", "/nothing"):
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.post("/decide", content=BODY).status_code == 401
    assert client.post("/decide", content=BODY, headers=right).status_code == 200
    assert client.get("/metrics", headers=right).status_code == 200
    odd = httpx.Headers([(b"authorization", b"Bearer \xff\xfe")])
    assert client.get("/metrics", headers=odd).status_code == 401


def test_only_this_machine_needs_no_token():
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        assert is_loopback(host)
        service(host=host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""):
        assert not is_loopback(host)
        with pytest.raises(ConfigError, match="a token is needed"):
            service(host=host)
        service(host=host, token=TOKEN)
    with pytest.raises(ConfigError, match="16 printable"):
        service(token="short")


def test_a_large_or_slow_body_is_refused():
    def slowly():
        yield BODY[:10]
        time.sleep(1.5)
        yield BODY[10:]

    with client_of(service(largest_body=len(BODY), body_s=0.3)) as client:
        assert client.post("/decide", content=BODY).status_code == 200
        assert client.post("/decide", content=BODY + b" ").status_code == 413
        assert client.post("/decide", content=slowly()).status_code == 408
        assert client.post("/decide", content=BODY).status_code == 200


def test_more_requests_than_can_wait_are_told_so():
    statuses = []
    with client_of(service(Here(busy_s=0.5), waiting=2)) as client:

        def ask():
            statuses.append(client.post("/decide", content=BODY).status_code)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses)[-1] == 503 and statuses.count(200) >= 2
        assert client.post("/decide", content=BODY).status_code == 200


def test_what_happened_can_be_read_in_metrics_log_and_page(tmp_path):
    records = Records(tmp_path)
    with client_of(service(records=records)) as client:
        client.post("/decide", content=BODY)
        client.post("/decide", content=change(version=99))
        client.post("/decide", content=b"{")
        text, page = client.get("/metrics").text, client.get("/")
    records.close()
    for line in (
        "ganger_decisions_total 2.0",
        'ganger_fallbacks_total{reason="late"} 1.0',
        'ganger_requests_total{status="400"} 1.0',
        "ganger_decision_seconds_count 2.0",
        "ganger_jobs 2.0",
        "ganger_executors 4.0",
    ):
        assert line in text
    assert page.headers["content-type"].startswith("text/html")
    assert "All is well" in page.text and "fallbacks total late" in page.text
    lines = (tmp_path / "decisions.jsonl").read_bytes().splitlines()
    rounds = [msgspec.json.decode(line, type=Round) for line in lines]
    assert [one.answer.fallback for one in rounds] == [None, "late"]
    assert rounds[0].observation == SMALL


def test_the_page_says_what_is_wrong():
    asked = service()
    answer = Here().decide(SMALL)
    asked._metrics.answered(SMALL, replace(answer, fallback="open", drift=2.0), "acted")
    with client_of(asked) as client:
        assert "The breaker is open" in client.get("/").text
        assert "unlike what the policy was trained on" in client.get("/").text


def test_the_description_of_the_service_names_all_that_is_sent_and_received(client):
    document = client.get("/openapi.json").json()
    assert document == json.loads(json.dumps(openapi(False)))
    schemas = document["components"]["schemas"]
    for struct in (Observation, Answer):
        fields = {field.encode_name for field in msgspec.structs.fields(struct)}
        assert set(schemas[struct.__name__]["properties"]) == fields
    assert "token" in openapi(True)["components"]["securitySchemes"]


def test_a_port_that_is_taken():
    with (
        WebServer(service().application(), "127.0.0.1", 0) as server,
        pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1, port {server.port}"),
    ):
        WebServer(service().application(), "127.0.0.1", server.port)
    with pytest.raises(ConfigError, match="expected 0 to 65535"):
        WebServer(service().application(), "127.0.0.1", 70000)


def test_settings_of_the_guard_reach_it():
    assert GuardConfig(deadline_s=1).fallback == "fair"
