"""Training of span readers: a joint teacher, split students, distillation."""
