from greenroom import BubblewrapSandbox, LlmAgent, SandboxLimits, WorkspaceToolset


def is_risky(args: dict[str, str]) -> bool:
    return "rm " in args.get("command", "")


analyst = LlmAgent(
    name="analyst",
    model="gpt-5-mini",
    instruction="You analyse the files that the user attaches.",
    tools=[
        WorkspaceToolset(
            BubblewrapSandbox(limits=SandboxLimits(memory_bytes=1024**3)),
            timeout_seconds=120,
            require_confirmation=is_risky,
        )
    ],
)
