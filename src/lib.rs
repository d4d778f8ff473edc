//! Meshwright plans, simulates and runs distributed deep-learning training.
