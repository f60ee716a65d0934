from greenroom import BubblewrapSandbox, SandboxCodeExecutor, SandboxLimits

executor = SandboxCodeExecutor(
    BubblewrapSandbox(
        python="/opt/analysis/bin/python",
        limits=SandboxLimits(memory_bytes=2 * 1024**3),
    ),
    stateful=True,
)
