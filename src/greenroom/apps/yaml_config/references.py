"""Resolves the dotted names in an app's configuration files, and refuses unsafe ones.

`shop.tools.price` is looked for

1. in the app itself: as a module of the app `shop`, or beside its `root_agent.yaml`; a name that begins with a dot is
   in the folder of the file that it stands in,
2. in the component registry,
3. among the installed packages,
4. beside the app's folder, where modules for all apps are; of the app `team.shop` in `team`, then beside that.

Source of the refusals: ADK, which keeps the standard library out of configuration files, so that `os.system` can never
be a tool. Here, names that a module has imported from there are refused, too.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from greenroom.apps.component_registry import ComponentRegistry
from greenroom.apps.isolation import PrivatePackage, is_installed
from greenroom.apps.yaml_config.document import ConfigNode, did_you_mean
from greenroom.errors import MissingExtra

REFUSED_MODULES = frozenset(
    {
        "_pytest", "asyncore", "asynchat", "cffi", "cgi", "cgitb", "distutils", "imp", "invoke", "pexpect", "pip",
        "pipes", "pkg_resources", "plumbum", "ptyprocess", "pytest", "ruamel", "setuptools", "sh", "smtpd", "telnetlib",
        "uv", "yaml",
    }
)  # fmt: skip


class References:
    """Finds the code that the files of one app name.

    package: the private package that the app's folder is in, at any depth.
    folder: the app's folder.
    """

    def __init__(
        self,
        package: PrivatePackage,
        folder: Path,
        registry: ComponentRegistry | None = None,
    ) -> None:
        self._package = package
        self._app = list(folder.relative_to(package.folder).parts)
        self._folder = folder
        self.root = package.folder
        self.registry = registry or ComponentRegistry.get_instance()

    def find(self, node: ConfigNode) -> object:
        """Raises ConfigFileError, and any exception of the import of an app's own module."""
        name = node.text.strip()
        parts = name.removeprefix(".").split(".")
        if len(parts) == 1 and not name.startswith("."):
            return self._by_bare_name(node, name)

        if any(not part.isidentifier() for part in parts):
            value = self.registered(node, name)
            if value is not None:
                return value
            raise node.error(f"{name!r} is no dotted name, such as {self._app[-1]}.tools.lookup")

        if any(part.startswith("__") for part in parts):
            raise node.error(f"{name!r}: names that begin with '__' are refused")
        if name.startswith("."):
            return self._relative(node, name, parts)

        own = self._own(parts)
        if own is not None:
            return self._attribute(node, *own)

        value = self.registered(node, name)
        if value is not None:
            return value

        return self._installed(node, name, parts)

    def _by_bare_name(self, node: ConfigNode, name: str) -> object:
        value = self.registered(node, name)
        if value is None:
            hint = did_you_mean(
                name, self.registry.names(), otherwise=f"; code of the app is named as in '.tools.{name}'"
            )
            raise node.error(f"there is no component {name!r}{hint}")
        return value

    def _relative(self, node: ConfigNode, name: str, parts: list[str]) -> object:
        above = [*self._app, *node.file.path.parent.relative_to(self._folder).parts]
        location = self._longest(above, parts) or self._in_package(above, parts)
        if location is None:
            names = [path.stem for path in node.file.path.parent.glob("*.py")]
            hint = did_you_mean(parts[0], names)
            raise node.error(f"{name!r}: there is no module {parts[0]!r} beside this file{hint}")
        return self._attribute(node, *location)

    def _own(self, parts: list[str]) -> tuple[ModuleType, list[str]] | None:
        rest = self._after_own_name(parts)
        if rest:
            found = self._longest(self._app, rest) or self._in_package(self._app, rest)
            if found is not None:
                return found
        return self._longest(self._app, parts)

    def _after_own_name(self, parts: list[str]) -> list[str] | None:
        """The name without the app's own name in front (`shop`, or `team.shop` for an app in
        `team`), or None.
        """
        for start in range(len(self._app) - 1, -1, -1):
            own = self._app[start:]
            if parts[: len(own)] == own:
                return parts[len(own) :]
        return None

    def _longest(self, above: list[str], parts: list[str]) -> tuple[ModuleType, list[str]] | None:
        """The innermost module of a dotted name, with the rest of the name."""
        for end in range(len(parts), 0, -1):
            dotted = ".".join([*above, *parts[:end]])
            if self._package.has(dotted):
                return importlib.import_module(f"{self._package.name}.{dotted}"), parts[end:]
        return None

    def _in_package(
        self,
        above: list[str],
        parts: list[str],
    ) -> tuple[ModuleType, list[str]] | None:
        """Attributes defined in a folder's `__init__.py` itself."""
        if not self.root.joinpath(*above, "__init__.py").is_file():
            return None
        package = importlib.import_module(".".join([self._package.name, *above]))
        return (package, parts) if hasattr(package, parts[0]) else None

    def registered(self, node: ConfigNode, name: str) -> object | None:
        """Raises ConfigFileError when the registered component can't be imported."""
        try:
            return self.registry.get(name)
        except MissingExtra as error:
            raise node.error(error.detail) from error
        except (ImportError, AttributeError) as error:
            raise node.error(f"{name!r} is not available in this version of greenroom: {error}") from error

    def _installed(self, node: ConfigNode, name: str, parts: list[str]) -> object:
        if parts[0] in sys.stdlib_module_names or parts[0] in REFUSED_MODULES:
            raise node.error(f"{name!r}: configuration files may not name anything in {parts[0]!r}")

        if not is_installed(parts[0], apart_from=[self.root / self._app[0]]):
            if self._after_own_name(parts) is None:
                around = range(len(self._app) - 1, -1, -1)
            else:
                around = ()

            for end in around:
                beside = self._longest(self._app[:end], parts)
                if beside is not None:
                    return self._attribute(node, *beside)

            raise node.error(f"{name!r}: {self._missing_module(parts)}")

        module = importlib.import_module(parts[0])
        rest = parts[1:]
        while rest:
            longer = f"{module.__name__}.{rest[0]}"
            if hasattr(module, rest[0]) or _spec(longer) is None:
                break
            module = importlib.import_module(longer)
            rest = rest[1:]

        return self._attribute(node, module, rest)

    def _attribute(self, node: ConfigNode, module: ModuleType, rest: list[str]) -> object:
        name = node.text.strip()
        value: Any = module
        for part in rest:
            holder: Any = value
            try:
                value = getattr(holder, part)
            except AttributeError:
                public = [attribute for attribute in dir(holder) if not attribute.startswith("_")]
                shown = getattr(holder, "__name__", type(holder).__name__).removeprefix(self._package.name + ".")
                raise node.error(f"{name!r}: {shown} has no {part!r}{did_you_mean(part, public)}") from None

            if isinstance(value, ModuleType) and not value.__name__.startswith(f"{getattr(holder, '__name__', '')}."):
                raise node.error(f"{name!r}: {part!r} is a module from elsewhere")

        if isinstance(value, ModuleType):
            raise node.error(f"{name!r} is a module; name something in it")

        home = getattr(value, "__module__", None)
        if isinstance(home, str) and (inspect.isroutine(value) or isinstance(value, type)):
            top = home.partition(".")[0]
            if top in sys.stdlib_module_names or top in REFUSED_MODULES:
                raise node.error(f"{name!r}: configuration files may not name anything in {top!r}")

        return value

    def _missing_module(self, parts: list[str]) -> str:
        own = [path.stem for path in self._folder.glob("*.py")]
        rest = self._after_own_name(parts)
        if rest:
            return f"the app has no module {rest[0]!r}{did_you_mean(rest[0], own)}"

        return (
            f"there is no module {parts[0]!r}, neither in the app nor in the registry nor among the installed "
            f"packages{did_you_mean(parts[0], [self._app[-1], *own])}"
        )


def _spec(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):  # a package on the way can't be imported, or a module was made by hand
        return None
