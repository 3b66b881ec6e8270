"""Engineers that are language models: at hand, or behind a server."""

from dataclasses import replace

import pytest

from engineer import (
    EndpointEngineer,
    GeneratedText,
    LanguageModelEngineer,
    NoteWriter,
    RuleEngineer,
    Task,
)
from engineer.budget import Budget
from engineer.context import Context
from engineer.engineers.chat_client import ChatClient
from engineer.space import AnswerForm, answer_schema, answer_text
from tests.engineer.engineers.conftest import completion


@pytest.fixture
def task(view) -> Task:
    context = Context("the context", cut=(), tokens=2)
    return Task(context, view, answer_schema(view.domain.space), seed=11, attempt=2)


def test_endpoint_is_asked_for_an_answer_that_follows_the_schema(serve, task, bounds, current):
    server = serve(completion(answer_text(current), usage={"completion_tokens": 77}))
    engineer = EndpointEngineer(ChatClient(server.url, "some-model"), temperature=0.3)
    proposal = engineer.propose(task)
    assert (proposal.text, proposal.tokens) == (answer_text(current), 77)
    assert proposal.seconds > 0
    assert engineer.name == "some-model"
    [body] = server.asked
    assert body["messages"] == [{"role": "user", "content": "the context"}]
    assert (body["model"], body["temperature"]) == ("some-model", 0.3)
    assert body["response_format"]["json_schema"]["schema"] == answer_schema(bounds)


def test_endpoint_is_not_sent_a_pattern_that_it_might_not_know(serve, task):
    server = serve(completion("n3 = = ="))
    engineer = EndpointEngineer(ChatClient(server.url, "m"), max_tokens=300, note_tokens=40)
    assert engineer.propose(replace(task, form="n3 [-+=]")).text == "n3 = = ="
    [body] = server.asked
    assert body["max_tokens"] == 300
    assert not {"response_format", "structured_outputs", "guided_regex"} & set(body)


def test_notes_are_asked_for_without_a_schema(serve):
    server = serve(completion("some notes", usage={"completion_tokens": 2}))
    proposal = EndpointEngineer(ChatClient(server.url, "m")).write("sum up", seed=1)
    assert (proposal.text, proposal.tokens) == ("some notes", 2)
    [body] = server.asked
    assert body["messages"][0]["content"] == "sum up"
    assert "response_format" not in body


def test_endpoint_is_allowed_its_limits_and_what_is_left_of_the_budget(serve, task):
    server = serve(completion("{}"))
    engineer = EndpointEngineer(ChatClient(server.url, "m"), max_tokens=300, note_tokens=40)
    engineer.propose(task)
    engineer.propose(replace(task, budget=Budget(engineer_tokens=9)))
    engineer.propose(replace(task, budget=Budget(engineer_tokens=9000)))
    engineer.write("sum up", seed=0)
    engineer.write("sum up", seed=0, max_tokens=8)
    assert [body["max_tokens"] for body in server.asked] == [300, 9, 300, 40, 8]


def test_language_model_gets_the_context_the_form_the_seed_and_what_is_left(task):
    def generate(
        prompt: str, form: AnswerForm | None, seed: int, limit: int | None
    ) -> GeneratedText:
        kind = form["type"] if isinstance(form, dict) else form or "free"
        return GeneratedText(f"{prompt} {kind} {seed} {limit}", 4)

    engineer = LanguageModelEngineer(generate, name="some/model")
    assert engineer.name == "some/model"
    proposal = engineer.propose(task)
    assert (proposal.text, proposal.tokens) == ("the context object 11 None", 4)
    bounded = replace(task, budget=Budget(engineer_tokens=9))
    assert engineer.propose(bounded).text == "the context object 11 9"
    edits = replace(task, form="n3 [-+=]")
    assert engineer.propose(edits).text == "the context n3 [-+=] 11 None"
    assert engineer.write("notes", seed=5).text == "notes free 5 None"
    assert engineer.write("notes", seed=5, max_tokens=3).text == "notes free 5 3"


def test_language_models_write_notes_and_the_rule_does_not():
    assert isinstance(LanguageModelEngineer(lambda *question: GeneratedText("", 0)), NoteWriter)
    assert isinstance(EndpointEngineer(ChatClient("http://127.0.0.1:1/v1", "m")), NoteWriter)
    assert not isinstance(RuleEngineer(), NoteWriter)
