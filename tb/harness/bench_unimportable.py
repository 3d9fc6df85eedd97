"""A bench that can't be imported."""

import a_module_that_is_not_there  # pyright: ignore[reportMissingImports] # noqa: F401
