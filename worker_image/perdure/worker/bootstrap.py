"""The application's own start-up: a function of the user that runs once, before a worker claims its first run.

Called by `worker`, on its loop and in the context in which it does everything else, so that steps see the context
variables, pools and containers that the function sets up. What it returns is entered if it is a context manager, and
left after the drain, by the same asyncio task.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AsyncExitStack
from functools import reduce
from importlib import import_module
from typing import Any

from perdure.errors import BootstrapFailed, ConfigurationError
from perdure.telemetry.logs import get_logger

log = get_logger(__name__)

EXIT_SECONDS = 5.0
"""Longest exit: half of what the operator leaves of the pod's grace period after the drain."""


class Bootstrap:
    """The hook that `reference` (`module:function`, "" = none) names."""

    def __init__(self, reference: str) -> None:
        self.reference = reference
        self._entered = AsyncExitStack()

    async def run(self) -> None:
        """Call the function and enter what it returns. Nothing is left entered when this raises.

        Raises `ConfigurationError` when there is no such function, `BootstrapFailed` with the hook's own error as its
        cause when it raises, whatever it is.
        """
        if not self.reference:
            return
        function = self._find()
        try:
            made = function()
            if inspect.isawaitable(made):
                made = await made
            await self._enter(made)
        except (asyncio.CancelledError, KeyboardInterrupt, ConfigurationError):
            raise
        except BaseException as error:
            raise BootstrapFailed(f"{self.reference} raised {type(error).__name__}: {error}") from error

    async def close(self) -> bool:
        """Leave what was entered, within `EXIT_SECONDS`; whether it left without an error, which is logged."""
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                await self._entered.aclose()
        except TimeoutError as error:
            log.error("the bootstrap hook does not end", hook=self.reference, seconds=EXIT_SECONDS, exc_info=error)
        except Exception as error:
            log.error("the bootstrap hook failed at its end", hook=self.reference, exc_info=error)
        else:
            return True
        return False

    def _find(self) -> Any:
        module, _, path = self.reference.partition(":")
        try:
            found: Any = reduce(getattr, path.split("."), import_module(module))
        except ModuleNotFoundError as error:
            if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
                raise BootstrapFailed(f"module {module} cannot be imported: {error}") from error
            raise ConfigurationError(f"PERDURE_BOOTSTRAP names {module}, and there is no module {error.name}") from None
        except AttributeError:
            raise ConfigurationError(f"PERDURE_BOOTSTRAP names {path}, which is not in {module}") from None
        except Exception as error:
            raise BootstrapFailed(f"module {module} cannot be imported: {type(error).__name__}: {error}") from error
        if not callable(found):
            raise ConfigurationError(f"PERDURE_BOOTSTRAP names {self.reference}, which cannot be called")
        return found

    async def _enter(self, made: Any) -> None:
        if inspect.isgenerator(made) or inspect.isasyncgen(made):
            decorator = "contextmanager" if inspect.isgenerator(made) else "asynccontextmanager"
            raise ConfigurationError(f"{self.reference} yields: decorate it with @contextlib.{decorator}")
        if hasattr(type(made), "__aenter__"):
            await self._entered.enter_async_context(made)
        elif hasattr(type(made), "__enter__"):
            self._entered.enter_context(made)
