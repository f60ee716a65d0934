from greenroom import App, LlmAgent, RunJudge

agent = LlmAgent(name="weather", model="gemini-2.5-flash")

polite = RunJudge(
    name="polite",
    metric="rubric_based_final_response_quality_v1",
    criterion={
        "rubrics": [{"rubricId": "polite", "rubricContent": {"textProperty": "The answer is polite."}}],
        "judge_model_options": {"judge_model": "gpt-5-mini", "num_samples": 1},
    },
    share=0.05,
    max_cost_per_day=2,
)

app = App(name="weather", root_agent=agent, judges=[polite, RunJudge(metric="safety_v1", max_tokens_per_day=200_000)])
