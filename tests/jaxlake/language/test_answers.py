"""The parser accepts many formats and rejects ambiguous plans."""

import json
import random
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jaxlake import Action
from jaxlake.language.answers import parse_answer
from jaxlake.language.plans import ACTION_WORDS, FILLERS
from jaxlake.language.prompts import target

NAMES = [action.name for action in Action]

ACTION_LISTS = st.lists(st.integers(0, 4), min_size=1, max_size=12)
PLANS = st.lists(ACTION_LISTS, min_size=1, max_size=5)


def spell_actions(plan):
    return [[NAMES[action] for action in agent] for agent in plan]


def format_lines(
    plan, header="Agent {}: ", separator=" ", line_end="\n", row_format="{}", spell=str
):
    return line_end.join(
        header.format(i) + row_format.format(separator.join(map(spell, agent)))
        for i, agent in enumerate(spell_actions(plan))
    )


FORMATS = {
    "canonical": format_lines,
    "lower case": lambda plan: format_lines(plan).lower(),
    "commas": lambda plan: format_lines(plan, separator=", ", line_end=".\n"),
    "semicolons": lambda plan: format_lines(plan, separator="; "),
    "ASCII arrows": lambda plan: format_lines(plan, separator=" -> "),
    "arrows": lambda plan: format_lines(plan, separator=" → "),
    "brackets": lambda plan: format_lines(plan, separator=", ", row_format="[{}]"),
    "quoted": lambda plan: format_lines(
        plan, separator=", ", row_format="[{}]", spell=lambda w: f'"{w}"'
    ),
    "letters": lambda plan: format_lines(plan, spell=lambda word: word[0]),
    "synonyms": lambda plan: format_lines(plan).replace("WAIT", "Stay"),
    "no-op": lambda plan: format_lines(plan).replace("WAIT", "NO_OP"),
    "bold headers": lambda plan: format_lines(plan, header="- **Agent {}:** "),
    "bold outside": lambda plan: format_lines(plan, header="**Agent {}**: "),
    "arrow headers": lambda plan: format_lines(plan, header="agent {} -> "),
    "underscore headers": lambda plan: format_lines(plan, header="agent_{}: "),
    "robots": lambda plan: format_lines(plan, header="Robot {}: "),
    "dash headers": lambda plan: format_lines(plan, header="Agent {} - "),
    "possessive headers": lambda plan: format_lines(plan, header="Agent {}'s moves: "),
    "bullets": lambda plan: format_lines(
        plan, header="Agent {}:\n- ", separator="\n- ", line_end="\n\n"
    ),
    "one line": lambda plan: format_lines(plan, line_end="; "),
    "table": lambda plan: format_lines(plan, header="| Agent {} | ", line_end=" |\n") + " |",
    "Windows": lambda plan: format_lines(plan, line_end="\r\n"),
    "fence": lambda plan: f"Here it is:\n```text\n{format_lines(plan)}\n```\nEverybody arrives.",
    "fence an agent": lambda plan: (
        format_lines(plan, header="Agent {}:\n```\n", line_end="\n```\n") + "\n```"
    ),
    "preface": lambda plan: (
        f"Agent 0 goes right first, so that...\n\n{format_lines(plan)}\n\nDone."
    ),
    "thinking": lambda plan: f"<think>Agent 0: UP? No.</think>\n\n{format_lines(plan)}",
    "open thinking": lambda plan: f"Agent 0: maybe LEFT...\n</think>{format_lines(plan)}",
    "answer tags": lambda plan: (
        f"<answer>Agent 0: draft</answer> or <ANSWER>\n{format_lines(plan)}</ANSWER> ok"
    ),
    "tags that are named": lambda plan: (
        f"Between <answer> and </answer>:\n<answer>{format_lines(plan)}</answer>"
    ),
    "prefilled tag": lambda plan: f"{format_lines(plan)}\n</answer>",
    "JSON numbers": lambda plan: json.dumps({str(i): x for i, x in enumerate(spell_actions(plan))}),
    "JSON names": lambda plan: json.dumps(
        {f"agent_{i}": x for i, x in enumerate(spell_actions(plan))}, indent=2
    ),
    "JSON strings": lambda plan: json.dumps(
        {f"Agent {i}": " ".join(x) for i, x in enumerate(spell_actions(plan))}
    ),
    "JSON lists": lambda plan: json.dumps(spell_actions(plan)),
    "JSON wrapped": lambda plan: f"```json\n{json.dumps({'plan': spell_actions(plan)})}\n```",
    "Python lists": lambda plan: f"The plan is {spell_actions(plan)}.",
}


@pytest.mark.parametrize("name", FORMATS)
@given(plan=PLANS)
def test_parse_answer_reads_any_formatting(name, plan):
    answer = parse_answer(FORMATS[name](plan), len(plan), max_steps=max(map(len, plan)))
    assert answer.parsed, answer.reason
    assert answer.plan == tuple(map(tuple, plan))
    assert answer.reason is None


@given(st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=2), min_size=1, max_size=12))
def test_target_round_trips_the_plan(steps):
    answer = parse_answer(target(steps), 2, max_steps=12)
    assert answer.parsed
    for agent, parsed_actions in enumerate(answer.plan):
        given_actions = [step[agent] for step in steps]
        assert given_actions[: len(parsed_actions)] == list(parsed_actions)
        assert not any(given_actions[len(parsed_actions) :])


@given(plan=PLANS, data=st.data())
def test_parse_answer_rejects_unknown_words(plan, data):
    unknown_word = data.draw(
        st.text(st.characters(categories=("L", "Nd")), min_size=1, max_size=12).filter(
            lambda word: (
                (word.isalpha() or word.isdecimal())  # "go2" is a comment of two words
                and word.lower() not in FILLERS
                and (word.upper() not in ACTION_WORDS or not word.isascii())
            )
        )
    )
    agent = data.draw(st.integers(0, len(plan) - 1))
    word_lists = spell_actions(plan)
    word_lists[agent].insert(data.draw(st.integers(0, len(plan[agent]))), unknown_word)
    separator = data.draw(st.sampled_from([" ", ", ", " -> ", "\n- "]))
    texts = [
        "\n".join(f"Agent {i}: {separator.join(row)}" for i, row in enumerate(word_lists)),
        json.dumps({f"agent_{i}": row for i, row in enumerate(word_lists)}),
        json.dumps(word_lists),
    ]
    for text in texts:
        answer = parse_answer(text, len(plan), max_steps=20)
        assert not answer.parsed
        assert answer.plan is None
        assert answer.reason


EXAMPLES = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_parse_answer_reads_model_completions(example):
    num_agents = len(example["plan"]) if example["plan"] else example["agents"]
    answer = parse_answer(example["text"], num_agents, max_steps=20)
    plan = answer.plan and [" ".join(NAMES[action] for action in agent) for agent in answer.plan]
    assert plan == example["plan"], answer.reason


TEXT_PIECES = [
    *("Agent 0", "agent_1", "Agent 7:", ":", " ", "\n", "\n\n", "RIGHT", "l", "->", "→"),
    *("```", "```json", "<think>", "</think>", "<answer>", "</answer>", "{", "}", "[", "]"),
    *('"', "'", ",", "0", "12", "x", "\u017ftay", "—", "\r", "\x00", "\ud800", "no-op"),
    *("plan", "null"),
]


@given(
    st.text(max_size=300) | st.lists(st.sampled_from(TEXT_PIECES), max_size=40).map("".join),
    st.integers(1, 5),
)
def test_parse_answer_accepts_any_text(text, num_agents):
    answer = parse_answer(text, num_agents, max_steps=10)
    assert answer.parsed == (answer.plan is not None) == (answer.reason is None)
    if answer.parsed:
        assert len(answer.plan) == num_agents
        assert all(0 <= action <= 4 for agent in answer.plan for action in agent)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "agent 0 is missing"),
        ("RIGHT DOWN\nWAIT LEFT", "agent 0 is missing"),
        ("Agent 0: RIGHT", "agent 1 is missing"),
        ("Agent 1: RIGHT\nAgent 2: LEFT", "agent 2 is unknown: allowed are 0 to 1"),
        ("Agent 0: RIGHT\nAgent 99999999999: LEFT", "agent 999999999 is unknown"),
        ("Agent 0: RIGHT\nAgent 0: LEFT\nAgent 1: UP", "agent 0 is named twice"),
        ("Agent 0: RIGHT\nAgent 1: LEFT\nAgent 1: UP", "agent 1 is named twice"),
        ("Agent 0: RIGHT\nAgent 1:\nAgent 1: UP", "agent 1 has no actions"),
        ("Agent 0: RIGHT\nAgent 1: \ufffd\nAgent 1: UP", "'\ufffd' among the actions of agent 1"),
        ("Agent 0: RIGHT\nAgent 1:\x0f\nAgent 1: UP", "'\\x0f' among the actions of agent 1"),
        ('{"0": ["RIGHT"], "0": ["LEFT"], "1": ["UP"]}', "agent 0 is named twice"),
        ('{"0": ["RIGHT"], "agent_0": ["LEFT"], "1": ["UP"]}', "agent 0 is named twice"),
        ('[["RIGHT"]]', "agent 1 is missing"),
        ('[["RIGHT"], ["UP"], ["UP"]]', "agent 2 is unknown"),
        ('["RIGHT", "UP"]', "agent 0 is missing"),
        ('{"0": [4], "1": [1]}', "'4' among the actions of agent 0"),
        ('{"0": ["RIGHT", ""], "1": ["UP"]}', "'' among the actions of agent 0"),
        ('{"0": ["RIGHT", null], "1": ["UP"]}', "'None' among the actions of agent 0"),
        ('{"0": {"a": 1}, "1": ["UP"]}', "among the actions of agent 0"),
        ("Agent 0: 4 4\nAgent 1: 1", "'4' among the actions of agent 0"),
        ("Agent 0: RIGHT x2\nAgent 1: UP", "'x' among the actions of agent 0"),
        ("Agent 0: (0, 0) -> (0, 1)\nAgent 1: UP", "agent 0 has no actions"),
        ("Agent 0: RRD\nAgent 1: UP", "'RRD' among the actions of agent 0"),
        ("Agent 0: R\u0131GHT\nAgent 1: UP", "'R\u0131GHT' among"),
        ("Agent 0: RIGHT?\nAgent 1: UP", "'?' among the actions of agent 0"),
        ("Agent 0: RIGHT/DOWN\nAgent 1: UP", "'/' among the actions of agent 0"),
        ("Agent 0: ← ←\nAgent 1: UP", "'←' among the actions of agent 0"),
        ("Agent 0: → →\nAgent 1: UP", "agent 0 has no actions"),
        ("Agent 0: RIGHT\nAgent 1:", "agent 1 has no actions"),
        ("Agent 0: RIGHT\n\nDOWN\nAgent 1: UP", "'DOWN' stands apart"),
        ("Agent 0: RIGHT\nAgent 1: UP\n\n- DOWN", "'- DOWN' stands apart"),
        ("Agent 0: ```RIGHT\n```DOWN\nAgent 1: UP x", "'x' among the actions of agent 1"),
        ("Agent 0: UP UP UP UP UP UP\nAgent 1: UP", "agent 0 has more than 5 actions"),
        ('{"0": ["UP", "UP", "UP", "UP", "UP", "UP"], "1": ["UP"]}', "more than 5 actions"),
        ("<think>Agent 0: RIGHT\nAgent 1: LEFT", "never closed"),
        ("Agent 0: RIGHT\nAgent 1: LEFT\n<think>but then", "never closed"),
        ("<think>Agent 0: RIGHT\nAgent 1: LEFT</think>", "agent 0 is missing"),
        ("Agent 0: RIGHT\nAgent 1: LEFT <answer></answer>", "agent 0 is missing"),
    ],
)
def test_parse_answer_rejects_ambiguous_text(text, reason):
    answer = parse_answer(text, 2, max_steps=5)
    assert not answer.parsed
    assert answer.plan is None
    assert reason in answer.reason


def test_parse_answer_merges_equal_plans():
    text = "Agent 0: RIGHT\nAgent 1: LEFT\n\nFinal answer:\nAgent 0: right\nAgent 1: left"
    assert parse_answer(text, 2, max_steps=5).plan == ((4,), (3,))
    assert parse_answer('{"0": ["UP"], "1": []}', 2, max_steps=5).plan == ((1,), ())
    assert parse_answer('[["UP"], [{"action": []}]]', 2, max_steps=5).plan == ((1,), ())


@pytest.mark.parametrize(("num_agents", "max_steps"), [(0, 5), (2, 0)])
def test_parse_answer_rejects_limits_below_1(num_agents, max_steps):
    with pytest.raises(ValueError, match=f"got {num_agents} and {max_steps}"):
        parse_answer("", num_agents, max_steps=max_steps)


JUNK_LENGTH = 1_000_000
JUNK_TEXTS = {
    "letters": "a" * JUNK_LENGTH,
    "blanks": "Agent 0:" + " " * JUNK_LENGTH,
    "step": "Step" + " " * JUNK_LENGTH,
    "blank lines": "Agent 0:" + "\n " * (JUNK_LENGTH // 2),
    "brackets": "[" * JUNK_LENGTH,
    "objects": '{"0":' * (JUNK_LENGTH // 5),
    "quotes": "'" * JUNK_LENGTH,
    "fences": "```" * (JUNK_LENGTH // 3),
    "backticks": "Agent 0:" + "`" * JUNK_LENGTH,
    "stars": "Agent 0" + "*" * JUNK_LENGTH,
    "names": "agent 0 " * (JUNK_LENGTH // 8),
    "headers": "Agent 0: R\n\n" * (JUNK_LENGTH // 12),
    "digits": "[" + "9" * JUNK_LENGTH + "]",
    "agent number": "Agent " + "9" * JUNK_LENGTH + ": R",
    "thoughts": "<think>" * (JUNK_LENGTH // 7),
    "answers": "<answer></answer>" * (JUNK_LENGTH // 17),
    "strays": "Agent 0: R\n\n" + "x y\n" * (JUNK_LENGTH // 4),
    "anything": "".join(random.Random(0).choices([chr(i) for i in range(32, 1200)], k=JUNK_LENGTH)),
}


@pytest.mark.parametrize("name", JUNK_TEXTS)
def test_megabyte_of_junk_is_rejected_in_seconds(name):
    start = time.process_time()
    assert not parse_answer(JUNK_TEXTS[name], 2, max_steps=64).parsed
    # Measured at 2.4 s at most; a pattern that backtracks would take hours.
    assert time.process_time() - start < 15
