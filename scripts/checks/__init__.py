"""The parts of scripts/check_layers.py."""
