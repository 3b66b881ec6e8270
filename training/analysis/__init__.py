"""What is read out of runs: reports, studies, evaluations, counterfactuals."""
