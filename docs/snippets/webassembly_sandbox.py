from greenroom import SandboxCodeExecutor, SandboxLimits, WebAssemblySandbox

executor = SandboxCodeExecutor(
    WebAssemblySandbox(limits=SandboxLimits(disk_bytes=64 * 1024**2)),
    stateful=True,
)
