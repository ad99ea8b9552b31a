"""Questions made from raw text: a span that comes again is asked for by one of its sentences.

Recurring span selection (Ram et al. 2021, "Few-Shot Question Answering by Pretraining Span Selection", §3): words
that two sentences of a passage share are hidden in one of them, which becomes the question; the answer is the same
words in the rest of the passage. The hidden words are replaced by a question word, as in cloze questions of
unsupervised question answering (Lewis et al. 2019, §2.3), so that the model needs no new symbol.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from narrows.data.articles import Article
from narrows.data.squad import Answer, QAExample

__all__ = ["cloze_examples"]

_WORD = re.compile(r"\w+(?:[-'’.,]\w+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z0-9])")
_LONGEST_SPAN = 8
_COMMONEST = 200
_LEAST_WORDS = 6
_MOST_SENTENCE_WORDS = 45


class _Word(NamedTuple):
    text: str
    start: int
    end: int
    sentence: int


def cloze_examples(
    articles: Iterable[Article], *, seed: int, per_passage: int = 5, passage_words: tuple[int, int] = (70, 220)
) -> list[QAExample]:
    """Makes questions from articles.

    Args:
        articles: texts to ask about.
        seed: chooses spans and sentences.
        per_passage: questions a passage at most.
        passage_words: short paragraphs are joined up to the first number; longer passages than the second are
            left out.

    Returns:
        Examples with one answer or more each, all the places where the hidden words stand.

    Example:
        `cloze_examples(read_articles("wiki.xml.bz2"), seed=0)`
    """
    articles = list(articles)
    common = _commonest(articles)
    examples = []
    seen: set[str] = set()
    for a, article in enumerate(articles):
        # Ids stay unique where a title comes again.
        label = f"{article.title}~{a}" if article.title in seen else article.title
        seen.add(article.title)
        for p, passage in enumerate(_passages(article.paragraphs, passage_words)):
            rng = random.Random(f"{seed} {a} {p}")
            made = _of_passage(passage, common, rng)
            for q, (question, context, answers) in enumerate(rng.sample(made, min(per_passage, len(made)))):
                name = f"cloze-{label}-{p}-{q}"
                examples.append(QAExample(name, article.title, question, context, tuple(answers)))
    return examples


def _commonest(articles: Sequence[Article]) -> frozenset[str]:
    counts = Counter(
        word.casefold() for article in articles for text in article.paragraphs for word in _WORD.findall(text)
    )
    return frozenset(word for word, _ in counts.most_common(_COMMONEST))


def _passages(paragraphs: Sequence[str], bounds: tuple[int, int]) -> Iterator[str]:
    least, most = bounds
    held: list[str] = []
    for paragraph in paragraphs:
        held.append(paragraph)
        words = sum(len(text.split()) for text in held)
        if words >= least:
            if words <= most:
                yield " ".join(held)
            held = []


def _of_passage(passage: str, common: frozenset[str], rng: random.Random) -> list[tuple[str, str, list[Answer]]]:
    """One question a recurring span: (question, the passage without that sentence, answers)."""
    sentences = _sentences(passage)
    words = [
        _Word(match.group(), match.start(), match.end(), number)
        for number, (start, end) in enumerate(sentences)
        for match in _WORD.finditer(passage, start, end)
    ]
    sizes = Counter(word.sentence for word in words)
    made = []
    for places in _recurring(words, common).values():
        asked = [p for p in places if _LEAST_WORDS <= sizes[p[0].sentence] <= _MOST_SENTENCE_WORDS]
        if not asked:
            continue
        first, last = rng.choice(asked)
        others = [(f, g) for f, g in places if f.sentence != first.sentence]
        if not others:
            continue
        start, end = sentences[first.sentence]
        question = _question(passage, (start, first.start, last.end, end), rng)
        context, removed = passage[:start] + passage[end:], end - start
        answers = [Answer(passage[f.start : g.end], f.start - (removed if f.start >= end else 0)) for f, g in others]
        made.append((question, context, answers))
    return made


def _sentences(text: str) -> list[tuple[int, int]]:
    """Where sentences begin and end; the space between two belongs to the former."""
    starts = [0, *(match.end() for match in _SENTENCE_END.finditer(text))]
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


def _recurring(words: Sequence[_Word], common: frozenset[str]) -> dict[str, list[tuple[_Word, _Word]]]:
    """The longest spans that stand in two sentences or more: folded words to (first word, last word) of each."""
    found: dict[str, list[tuple[_Word, _Word]]] = {}
    taken: set[int] = set()
    folded = [word.text.casefold() for word in words]
    for size in range(_LONGEST_SPAN, 0, -1):
        places: dict[str, list[int]] = defaultdict(list)
        for i in range(len(words) - size + 1):
            inside = words[i].sentence == words[i + size - 1].sentence and taken.isdisjoint(range(i, i + size))
            if inside and _may_answer(words[i : i + size], folded[i : i + size], common):
                places[" ".join(folded[i : i + size])].append(i)
        for key, begins in places.items():
            if len({words[i].sentence for i in begins}) > 1:
                found[key] = [(words[i], words[i + size - 1]) for i in begins]
                taken.update(j for i in begins for j in range(i, i + size))
    return found


def _may_answer(span: Sequence[_Word], folded: Sequence[str], common: frozenset[str]) -> bool:
    if folded[0] in common or folded[-1] in common or "unk" in folded:
        return False
    # A single word is worth asking for when it is a name, a number, or long enough to be a term.
    return len(span) > 1 or span[0].text[0].isupper() or span[0].text[0].isdigit() or len(folded[0]) > 6


def _question(passage: str, cut: tuple[int, int, int, int], rng: random.Random) -> str:
    start, hidden_start, hidden_end, end = cut
    hidden = passage[hidden_start:hidden_end]
    if hidden.isdigit() and len(hidden) == 4:
        word = "what year"
    elif hidden[0].isdigit():
        word = "how many"
    elif hidden[0].isupper():
        word = rng.choice(("what", "who", "which"))
    else:
        word = "what"
    text = f"{passage[start:hidden_start]}{word}{passage[hidden_end:end]}".strip()
    return f"{text.rstrip('.!?').rstrip()}?"
