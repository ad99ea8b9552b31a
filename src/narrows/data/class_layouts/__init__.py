"""Layouts of labelled data, a file each."""
