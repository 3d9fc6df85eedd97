"""A bench without a test."""
