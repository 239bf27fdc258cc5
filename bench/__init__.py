"""Measured against peers and physical limits, ratios in one run."""
