"""YAML as people write it by hand: a key twice is a slip, and an alias is no way to fill the memory."""

from typing import Any

import yaml

__all__ = ["load_strict"]

# With every alias written out. The largest recipe has some hundred.
_MOST_VALUES = 100_000


def load_strict(text: str) -> Any:
    """Like `yaml.safe_load`, which takes the last of two equal keys without a word.

    Args:
        text: one YAML document.

    Raises:
        yaml.YAMLError: not YAML, a key twice in one section, an alias of what it stands in, or aliases that stand for
            more than 100,000 values.

    Example:
        >>> load_strict("{a: 1, b: [x]}")
        {'a': 1, 'b': ['x']}
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _size(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values a node holds with every alias written out; `sizes` keeps those of nodes seen, 0 while open."""
    if id(node) in sizes:
        if sizes[id(node)] == 0:
            raise yaml.YAMLError(f"an alias of the value that it stands in{_at(node)}")
        return sizes[id(node)]
    sizes[id(node)] = 0
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        _require_once(node)
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    size = 1 + sum(_size(child, sizes) for child in children)
    if size > _MOST_VALUES:
        raise yaml.YAMLError(f"more than {_MOST_VALUES:,} values with every alias written out{_at(node)}")
    sizes[id(node)] = size
    return size


def _require_once(section: yaml.MappingNode) -> None:
    seen = set()
    for key, _ in section.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if (key.tag, key.value) in seen:
            raise yaml.YAMLError(f"the key {key.value[:100]!r} twice in one section{_at(key)}")
        seen.add((key.tag, key.value))


def _at(node: yaml.Node) -> str:
    return f", line {node.start_mark.line + 1}"
