"""Trained models: metrics, descriptions, the folder they are exported to, prediction."""
