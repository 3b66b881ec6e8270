"""Engineers that are language models at hand."""

from dataclasses import replace

from engineer import Context, GeneratedText, LanguageModelEngineer, Task
from engineer.space import AnswerForm, answer_schema


def test_language_model_gets_the_context_the_form_and_the_seed(view):
    def generate(prompt: str, form: AnswerForm | None, seed: int) -> GeneratedText:
        kind = form["type"] if isinstance(form, dict) else form or "free"
        return GeneratedText(f"{prompt} {kind} {seed}", 4)

    context = Context("the context", cut=(), tokens=2)
    task = Task(context, view, answer_schema(view.domain.space), seed=11, attempt=2)
    engineer = LanguageModelEngineer(generate, name="some/model")
    assert engineer.name == "some/model"
    proposal = engineer.propose(task)
    assert (proposal.text, proposal.tokens) == ("the context object 11", 4)
    edits = replace(task, form="n3 [-+=]")
    assert engineer.propose(edits).text == "the context n3 [-+=] 11"
    assert engineer.write("notes", seed=5).text == "notes free 5"
