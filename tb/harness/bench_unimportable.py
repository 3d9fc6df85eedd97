"""A bench that can't be imported."""

# That the module is missing, and unused, is what the bench is for: hence both suppressions.
import a_module_that_is_not_there  # pyright: ignore[reportMissingImports] # noqa: F401
