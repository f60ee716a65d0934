from __future__ import annotations

from tests.cli.conftest import Cli
from tests.environments.container_image import write_root_file_system
from tests.environments.podman import IMAGE_WITHOUT_PYTHON, PodmanService


def test_an_image_is_pulled_from_its_registry(cli: Cli, podman: PodmanService) -> None:
    podman.publish(IMAGE_WITHOUT_PYTHON)
    image = f"{podman.registry}/tools:1"
    done = cli("sandbox", "pull", image, "--base-url", podman.uri)
    assert (done.returncode, done.stdout) == (0, f"{image}\n")
    assert "Download complete" in done.stderr
    podman.run("image", "exists", image)


def test_an_image_is_built_from_a_folder(cli: Cli, podman: PodmanService) -> None:
    write_root_file_system(cli.folder / "root.tar", with_python=False)
    cli.write("Dockerfile", "FROM scratch\nADD root.tar /\nENV WHO=us\n")
    cli.environment["DOCKER_HOST"] = podman.uri
    done = cli("sandbox", "build", str(cli.folder))
    assert (done.returncode, done.stdout) == (0, "adk-code-executor:latest\n")
    assert "ADD root.tar" in done.stderr
    assert podman.run("run", "--rm", "--network=none", "adk-code-executor:latest", "sh", "-c", "echo $WHO") == "us\n"
    podman.run("rmi", "adk-code-executor:latest")


def test_failures_are_shown_in_one_line(cli: Cli, podman: PodmanService) -> None:
    cli.write("bad/Dockerfile", "FROM scratch\nNONSENSE\n")
    cli.environment["DOCKER_HOST"] = podman.uri
    for command, complaint in (
        (("pull", "NO NAME"), "The container engine refuses"),
        (("pull", "x", "--base-url", "unix:///nowhere"), "No container engine answers at unix:///nowhere"),
        (("build", str(cli.folder)), "There is no Dockerfile in"),
        (("build", str(cli.folder / "bad")), "NONSENSE"),
    ):
        done = cli("sandbox", *command)
        assert (done.returncode, done.stdout) == (1, "")
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr
