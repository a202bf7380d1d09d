"""Find the concrete classes of a package's modules: one file, one class, no registry to edit."""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def concrete_classes(package: ModuleType, base: type[T]) -> tuple[type[T], ...]:
    """Subclasses of ``base`` defined in ``package``'s modules that declare a ``name``, by name.

    Raises ``TypeError`` when a class's name differs from its module's.
    """
    found: dict[str, type[T]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for _, member in inspect.getmembers(module, inspect.isclass):
            is_local = member.__module__ == module.__name__
            if is_local and issubclass(member, base) and "name" in member.__annotations__:
                name = member.model_fields["name"].default  # type: ignore[attr-defined]
                if name != info.name:
                    raise TypeError(f"{module.__name__} defines {name!r}: name it like its module")
                found[name] = member
    return tuple(found[name] for name in sorted(found))
