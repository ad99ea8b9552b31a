"""From a recipe to a trained model: validated YAML, one builder, transformers' Trainer with our losses."""
