"""Agents that drive and watch the design in simulation."""
