"""Machines that work together for one run, from launch to release."""
