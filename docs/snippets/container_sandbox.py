from greenroom import ContainerSandbox, SandboxCodeExecutor

executor = SandboxCodeExecutor(ContainerSandbox(image="python:3.13-slim"), stateful=True)
