"""The small local model, fetched once if it isn't there, and an HTTP server that runs it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from greenroom.models.local import files as local_files


@pytest.fixture(scope="session")
def model_file() -> Path:
    return local_files.pull("smollm2-135m")


@pytest.fixture(scope="session")
def llama_server_url(model_file: Path) -> Iterator[str]:
    import xllamacpp

    library = cast("Any", xllamacpp)
    params = library.CommonParams()
    params.model.path = str(model_file)
    params.n_ctx = 2048
    params.n_predict = 8
    params.sampling.temp = 0
    params.warmup = False
    params.verbosity = -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = library.Server(params)
    yield f"{server.listening_address}/v1"
    del server
