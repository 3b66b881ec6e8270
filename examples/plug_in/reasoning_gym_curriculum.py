"""reasoning-gym: an engineer sets the weights and the attribute levels of a curriculum.

pip install reasoning-gym
python -m examples.plug_in.reasoning_gym_curriculum     # its data sets, an artificial learner
"""

from reasoning_gym.coaching import (
    CurriculumAttributeConfig,
    CurriculumExperiment,
    CurriculumExperimentConfig,
)

from engineer import Designer, LearnabilityEngineer, knob_domain
from engineer.space import KnobValues
from examples.plug_in.learner import Learner

DATASETS = ("spell_backward", "chain_sum", "gcd")


def configure(experiment: CurriculumExperiment, configuration: KnobValues) -> None:
    """Set each data set's weight, and its attributes to the level that its difficulty names."""
    composite = experiment.composite
    for name, knobs in configuration.items():
        curriculum = experiment.curricula[name]
        for attribute in curriculum.attributes.values():
            highest = len(attribute.levels) - 1
            curriculum.set_attr_level(attribute.name, round(knobs["difficulty"] * highest))
        constants = {
            field: getattr(composite.datasets[name].config, field) for field in ("seed", "size")
        }
        config = curriculum.generate_configuration(constants, experiment.context)
        composite.update_dataset_config(name, vars(config))
        composite.update_dataset_weight(name, knobs["data_ratio"])


def count_answers(experiment: CurriculumExperiment) -> dict[str, tuple[int, int]]:
    """Return the numbers of right answers and of all answers on the score board."""
    boards = experiment.score_board.scores.items()
    return {name: (sum(score == 1.0 for score in board), len(board)) for name, board in boards}


def main(stages: int = 8, num_entries: int = 64) -> Learner:
    """Train the artificial learner on real entries, stage by stage, and print each design."""
    domain = knob_domain(
        DATASETS, {"difficulty": "level of every attribute"}, step=0.1, min_share=0.1
    )
    designer = Designer(domain, LearnabilityEngineer())
    levels = {name: CurriculumAttributeConfig({"*": 0}) for name in DATASETS}
    config = CurriculumExperimentConfig(levels)
    experiment = CurriculumExperiment("plug_in", config, size=stages * num_entries, seed=0)
    learner = Learner(DATASETS, speed=0.05)
    configure(experiment, designer.configuration)
    for stage in range(stages):
        for index in range(stage * num_entries, (stage + 1) * num_entries):
            entry = experiment.get_dataset_entry(index)
            name = entry["metadata"]["source_dataset"]
            difficulty = designer.configuration[name]["difficulty"]
            for valid in learner.answers(name, difficulty):
                answer = entry["answer"] if valid else "no idea"
                experiment.score_answer_with_id(answer, entry["metadata"]["entry_id"])
        record = designer.design(count_answers(experiment))
        print(stage + 1, record.reason, designer.configuration)
        configure(experiment, designer.configuration)
        for name in DATASETS:
            experiment.score_board.clear(name)
    return learner


if __name__ == "__main__":
    main()
