import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.summaries import read_summaries
from narrows.errors import MissingExtraError, UsageError
from narrows.evaluation.rouge import ROUGE_WORDS, Rouge, RougeScore, UnicodeWords, rouge_summary

rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer", reason="needs the extra eval")

texts = st.lists(st.sampled_from(["the cat", "runs", "Away.", "Rivers", "flow!", "\n", "so"]), max_size=12).map(
    " ".join
)


def n_gram_f(prediction, reference, n):
    """ROUGE-N by its definition."""
    one, other = (Counter(zip(*(words[i:] for i in range(n)), strict=False)) for words in (prediction, reference))
    shared = (one & other).total()
    return 200 * shared / (one.total() + other.total()) if shared else 0.0


def common(a, b):
    """Length of the longest common subsequence."""
    lengths = [0] * (len(b) + 1)
    for word in a:
        before = 0
        for place, other in enumerate(b, start=1):
            before, lengths[place] = (
                lengths[place],
                before + 1 if word == other else max(lengths[place - 1 : place + 1]),
            )
    return lengths[-1]


@given(texts, texts)
def test_measures_equal_their_definitions(prediction, reference):
    words = [UnicodeWords().tokenize(text) for text in (prediction, reference)]
    for name in ("english", "unicode"):
        score = Rouge(words=name).score(prediction, [reference])
        assert score.rouge1 == pytest.approx(n_gram_f(*words, 1))
        assert score.rouge2 == pytest.approx(n_gram_f(*words, 2))
        longest = 200 * common(*words) / max(1, sum(map(len, words)))
        assert score.rougeL == pytest.approx(longest)
        assert score.average == pytest.approx(sum(score[:4]) / 4)
        assert all(0 <= value <= 100 for value in score)


@given(texts, st.lists(texts, min_size=1, max_size=3))
def test_several_references_give_the_maximum_of_each_measure(prediction, references):
    rouge = Rouge()
    score = rouge.score(prediction, references)
    each = [rouge.score(prediction, [reference]) for reference in references]
    assert list(score[:4]) == [max(column) for column in zip(*(one[:4] for one in each), strict=True)]


def test_scores_are_those_of_the_package_told_of_sentences():
    prediction, reference = "He ran. Dr. No sat\ndown. It ended.", "It ended. He ran down."
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
    theirs = scorer.score("It ended.\nHe ran down.", "He ran.\nDr. No sat\ndown.\nIt ended.")
    ours = Rouge().score(prediction, [reference])
    assert list(ours[:4]) == [100 * score.fmeasure for score in theirs.values()]
    # Sentences in another order cost the longest subsequence of the whole, and not that of sentences.
    assert ours.rougeLsum > ours.rougeL


def test_stems_are_found_when_asked_for():
    assert Rouge().score("runs", ["running"]).rouge1 == 100
    assert Rouge(words="english").score("runs", ["running"]).rouge1 == 0


def test_an_empty_summary_scores_nothing():
    for words in ROUGE_WORDS:
        assert Rouge(words=words).score("", ["A cat."]) == RougeScore(0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Größe: 東京 2024", ["grösse", "東", "京", "2024"]),
        ("ＡＢＣ, ﬁsh snake_case", ["abc", "fish", "snake", "case"]),
        ("カー。「々」", ["カ", "ー", "々"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("العربية كتابٌ", ["العربية", "كتابٌ"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("", []),
    ],
)
def test_words_of_other_scripts(text, words):
    import unicodedata

    assert UnicodeWords().tokenize(text) == [unicodedata.normalize("NFKC", word) for word in words]


def test_other_scripts_are_scored_by_unicode_words():
    prediction, references = "猫が座った。犬が走った。", ["犬が走った。猫が座った。"]
    score = Rouge(words="unicode").score(prediction, references)
    assert score.rouge1 == score.rougeLsum == 100
    assert score.rougeL < 100
    assert Rouge(words="english").score(prediction, references).average == 0


def test_a_data_set_is_summed_up_with_intervals():
    scores = [RougeScore(0, 10, 20, 30, 15), RougeScore(100, 30, 20, 50, 50)]
    summary = rouge_summary(iter(scores), samples=200, seed=1)
    assert [interval.mean for interval in summary[:5]] == [50, 20, 20, 40, 32.5]
    assert summary.rougeL == (20, 20, 20)
    assert summary.rouge1.low <= 50 <= summary.rouge1.high
    assert summary.total == 2
    assert summary == rouge_summary(scores, samples=200, seed=1)


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(UsageError, match="expected words to be one of english-stemmed, english, unicode, got 'german'"):
        Rouge(words="german")
    with pytest.raises(UsageError, match="expected at least one reference to score a summary with, got none; pass one"):
        Rouge().score("a", [])
    with pytest.raises(UsageError, match="expected at least one scored summary, got none; check that the data"):
        rouge_summary([])


class _Hidden:
    """Finds nothing of a package, as where it is not installed."""

    def __init__(self, package):
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=self.package)


@pytest.mark.parametrize(("package", "words"), [("rouge_score", "english"), ("regex", "unicode")])
def test_a_missing_extra_is_named(monkeypatch, package, words):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Hidden(package), *sys.meta_path])
    with pytest.raises(
        MissingExtraError, match=rf"`{package}` is needed to score summaries with ROUGE, .*narrows\[eval"
    ):
        Rouge(words=words)


def test_people_score_like_people_on_published_answers(shared_data):
    path = shared_data / "longdoc" / "squality_v1-3" / "dev.jsonl.gz"
    if not path.exists():
        pytest.skip("needs SQuALITY under longdoc")
    examples = [example for example, _ in zip(read_summaries(path, layout="squality"), range(10), strict=False)]
    rouge = Rouge()
    summary = rouge_summary(rouge.score(example.references[0], example.references[1:]) for example in examples)
    # Over all 125 questions: 46.1, 12.0, 22.2 and 42.4.
    assert 38 < summary.rouge1.mean < 55
    assert 6 < summary.rouge2.mean < 20
    assert 17 < summary.rougeL.mean < 30 < summary.rougeLsum.mean
