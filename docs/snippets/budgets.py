from greenroom import App, BudgetLimit, BudgetPlugin, LlmAgent

agent = LlmAgent(name="helper", model="gemini-2.5-flash")

app = App(
    name="helper",
    root_agent=agent,
    plugins=[
        BudgetPlugin(
            [
                BudgetLimit(per="run", tokens=200_000),
                BudgetLimit(per="user", money="0.50"),
                BudgetLimit(per="app", money=100, window="ever"),
                BudgetLimit(per="key", tokens=5_000_000),
            ]
        )
    ],
)
