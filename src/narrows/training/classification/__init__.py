"""Fine-tuning of any encoder on labelled texts, pairs, choices and tagged sentences."""
