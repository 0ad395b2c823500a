"""Run lm-evaluation-harness, Inspect and arviz_stats on pretend models, and keep what they write for the tests.

pip install lm-eval inspect-ai "arviz-stats[xarray]"
python scripts/eval_fixtures.py

The harnesses write the logs themselves; only what says something about this machine is taken out of them. Each model
knows the answer to a question with a probability of its own. The logs go to tests/data/evals/fixtures. The comparison
of three regressions by arviz_stats goes to tests/oracle/elpd_values.json.
"""

import json
import random
import shutil
import tempfile
from pathlib import Path

import arviz_base
import arviz_stats
import numpy as np
from inspect_ai import Task
from inspect_ai import eval as run_inspect
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import write_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, match, scorer
from lm_eval import simple_evaluate
from lm_eval.api.registry import register_model
from lm_eval.loggers import EvaluationTracker
from lm_eval.models.dummy import DummyLM
from lm_eval.tasks import TaskManager

TESTS = Path(__file__).parents[1] / "tests"
FIXTURES = TESTS / "data" / "evals" / "fixtures"
SKILLS = {"small": 0.35, "medium": 0.8, "large": 0.85}
DATE = "2026-01-02T03-04-05.678901"
# What stays of a results file: numbers, directions, settings and the model; not the machine, the time and the folders.
KEPT = (
    *("results", "n-samples", "higher_is_better", "model_source", "model_name", "model_name_sanitized"),
    *("n-shot", "versions", "system_instruction", "chat_template_sha"),
)
COUNTS = {"sums": 30, "doubles": 20, "capitals": 24}
TOWNS = {"France": "Paris", "Peru": "Lima", "Kenya": "Nairobi", "Japan": "Tokyo", "Norway": "Oslo", "Cuba": "Havana"}


def knows(model: str, question: str) -> bool:
    """Whether the model knows the answer: the same in every run."""
    return random.Random(f"{model}\0{question}").random() < SKILLS[model]


@register_model("pretend")
class Pretend(DummyLM):
    """The dummy model with a skill: what it knows it answers, otherwise it answers the first thing that comes."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.name = model

    @classmethod
    def create_from_arg_string(cls, arg_string, additional_config=None):
        return cls(arg_string.partition("=")[2])

    def loglikelihood(self, requests, disable_tqdm=False):
        return [(self._loglikelihood(*request.args, request.doc), False) for request in requests]

    def _loglikelihood(self, prompt, choice, doc):
        right = choice.strip() == str(doc["choices"][doc["answer"]])
        noise = random.Random(f"{self.name}{prompt}{choice}").random()
        return -noise - (0.0 if right and knows(self.name, prompt) else 1.0)

    def generate_until(self, requests, disable_tqdm=False):
        return [self._answer(request.args[0], request.doc["answer"]) for request in requests]

    def _answer(self, prompt, answer):
        if not knows(self.name, prompt):
            return "I do not know."
        # Half of the right answers have the form that the strict filter wants.
        return f"#### {answer}" if knows("large", prompt[::-1]) else f"It is {answer}"


def sums() -> list[dict]:
    draw = random.Random(1)
    rows = []
    for _ in range(COUNTS["sums"]):
        a, b = draw.randrange(100), draw.randrange(100)
        choices = draw.sample([a + b, a + b + 1, a + b + 10, a + b - 2], 4)
        rows.append({"question": f"{a} + {b} =", "choices": [str(c) for c in choices], "answer": choices.index(a + b)})
    return rows


def doubles() -> list[dict]:
    return [{"question": f"Twice {7 * k + 3} is", "answer": str(14 * k + 6)} for k in range(COUNTS["doubles"])]


def lm_eval_tasks(folder: Path) -> list[dict]:
    for name, rows in (("sums", sums()), ("doubles", doubles())):
        (folder / f"{name}.json").write_text(json.dumps(rows))

    def task(name, **more):
        data = {"data_files": {"test": str(folder / f"{name}.json")}}
        common = {"dataset_path": "json", "dataset_kwargs": data, "test_split": "test", "doc_to_text": "{{question}}"}
        return {"task": name, **common, **more}

    def pattern(name, regex, pick):
        steps = [{"function": "regex", "regex_pattern": regex, "group_select": pick}, {"function": "take_first"}]
        return {"name": name, "filter": steps}

    return [
        task(
            "sums",
            output_type="multiple_choice",
            doc_to_choice="{{choices}}",
            doc_to_target="{{answer}}",
            # mcc is a number of the whole task: the log holds [gold, prediction] of every question.
            metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}, {"metric": "mcc"}],
        ),
        task(
            "doubles",
            output_type="generate_until",
            doc_to_target="{{answer}}",
            metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
            filter_list=[pattern("strict-match", "#### ([0-9]+)", 0), pattern("flexible-extract", "([0-9]+)", -1)],
        ),
    ]


def run_lm_eval(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tasks = lm_eval_tasks(Path(folder))
        manager = TaskManager(include_defaults=False)
        for model in SKILLS:
            tracker = EvaluationTracker(output_path=folder)
            results = simple_evaluate(
                "pretend",
                f"model={model}",
                tasks=tasks,
                task_manager=manager,
                evaluation_tracker=tracker,
                bootstrap_iters=0,
            )
            samples = results.pop("samples")
            tracker.save_results_aggregated(results, samples)
            for name, rows in samples.items():
                tracker.save_results_samples(name, rows)
            (out / model).mkdir(parents=True)
            for file in (Path(folder) / model).iterdir():
                text = file.read_text(encoding="utf-8")
                if file.suffix == ".json":
                    whole = json.loads(text)
                    kept = {key: whole[key] for key in KEPT}
                    settings = {name: config.get("generation_kwargs") for name, config in whole["configs"].items()}
                    kept["configs"] = {name: {"generation_kwargs": value} for name, value in settings.items()}
                    text = json.dumps(kept, indent=1) + "\n"
                (out / model / file.name.replace(tracker.date_id, DATE)).write_text(text, encoding="utf-8")


@scorer(metrics=[accuracy()])
def marks():
    """Half marks for part of the answer, none for no answer, and no mark at all for the questions about Cuba."""

    async def score(state, target):
        answer = state.output.completion
        if "Cuba" in state.input_text:
            return Score(value=float("nan"))
        return Score(value="C" if answer == target.text else "N" if not answer else "P")

    return score


def run_inspect_ai(out: Path) -> None:
    countries = list(TOWNS)
    questions = [
        Sample(input=f"{k}. What is the capital of {countries[k % 6]}?", target=TOWNS[countries[k % 6]], id=f"q{k}")
        for k in range(COUNTS["capitals"])
    ]

    def answer(model):
        asked: dict[str, int] = {}

        def reply(messages, tools, choice, config):
            question = messages[-1].text
            asked[question] = asked.get(question, 0) + 1
            right = TOWNS[question.rpartition(" ")[2].rstrip("?")]
            content = right if knows(model, f"{question}{asked[question]}") else "" if len(question) % 2 else "Rome"
            output = ModelOutput.from_content(f"mockllm/{model}", content)
            output.usage = ModelUsage()  # counting them needs a table from the network
            return output

        return reply

    with tempfile.TemporaryDirectory() as folder:
        means = {}
        for model in SKILLS:
            (log,) = run_inspect(
                Task(name="capitals", dataset=MemoryDataset(questions, name="capitals"), scorer=[match(), marks()]),
                model=get_model(f"mockllm/{model}", custom_outputs=answer(model), memoize=False),
                epochs=2,
                max_samples=1,
                log_dir=folder,
                display="none",
            )
            if log.status != "success":
                raise RuntimeError(log.error.message)
            means[log.eval.model] = {each.name: each.metrics["accuracy"].value for each in log.results.scores}
            # Without the transcripts, which are large; Inspect itself writes the log again.
            for sample in log.samples:
                sample.events, sample.messages, sample.timelines = [], [], None
            out.mkdir(parents=True, exist_ok=True)
            file = out / f"{model}.{'json' if model == 'large' else 'eval'}"
            write_eval_log(log, file)
            if file.suffix == ".json":
                file.write_text(json.dumps(json.loads(file.read_text()), separators=(",", ":")) + "\n")
        (out / "means.json").write_text(json.dumps(means, indent=1) + "\n")


def run_arviz(out: Path) -> None:
    """Regressions on two columns, one of them and none; one observation pulls the slope towards itself."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(120, 2))
    x[0, 0], y = 8.0, x @ [0.5, 0.3] + rng.normal(size=120)
    y[0] += 6.0
    loos = {}
    for name, columns in (("both", [0, 1]), ("first", [0]), ("none", [])):
        z = np.column_stack([np.ones(120), x[:, columns]])
        covariance = np.linalg.inv(z.T @ z)
        draws = rng.multivariate_normal(covariance @ z.T @ y, covariance, size=(4, 500))
        likelihood = -0.5 * (y - draws @ z.T) ** 2 - 0.5 * np.log(2 * np.pi)
        data = arviz_base.from_dict({"posterior": {"slope": draws}, "log_likelihood": {"y": likelihood}})
        loos[name] = arviz_stats.loo(data, pointwise=True)
    table = arviz_stats.compare(loos)
    values = {
        "elpd_i": {name: loo.elpd_i.values.tolist() for name, loo in loos.items()},
        "pareto_k": {name: loo.pareto_k.values.tolist() for name, loo in loos.items()},
        "compare": {
            name: {key: float(row[key]) for key in ("elpd", "elpd_diff", "dse")} for name, row in table.iterrows()
        },
        "arviz_stats": arviz_stats.__version__,
    }
    out.write_text(json.dumps(values) + "\n")


def main() -> None:
    shutil.rmtree(FIXTURES, ignore_errors=True)
    run_lm_eval(FIXTURES / "lm_eval")
    run_inspect_ai(FIXTURES / "inspect")
    run_arviz(TESTS / "oracle" / "elpd_values.json")
    for file in sorted(FIXTURES.rglob("*")):
        if file.is_file():
            print(f"{file.stat().st_size:7d} {file.relative_to(FIXTURES)}")


if __name__ == "__main__":
    main()
