import json
import os
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from narrows.data.token_cache import TokenCache, TokenizedTexts, shard_key
from narrows.data.tokens import plain_tokens, tokenizer_rules
from narrows.errors import OutputError, UsageError

TEXTS = ["A river runs.", "", "The stone in the river [SEP].", "word " * 40, "x"]


@pytest.fixture(scope="module")
def tokenizer(tiny_bert):
    return Tokenizer.from_file(str(tiny_bert / "tokenizer.json"))


@pytest.fixture(scope="module")
def expected(tokenizer):
    tokenize = plain_tokens(tokenizer)
    return [tokenize(text) for text in TEXTS]


def as_lists(texts):
    return [ids.tolist() for ids in texts]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("characters", [1, 20, 10_000])
def test_ids_are_those_of_the_tokenizer_made_and_found(tmp_path, tokenizer, expected, characters):
    cache = TokenCache(tmp_path / "new" / "cache", tokenizer=tokenizer, shard_characters=characters)
    taken = []
    first = cache.tokenize(iter(TEXTS), on_shard=taken.append)
    again = cache.tokenize(TEXTS)
    assert as_lists(first) == as_lists(again) == expected
    assert sum(taken) == len(first) == len(TEXTS)
    assert (first.reused, again.made) == (0, 0)
    assert first.made == again.reused == len(taken) == len(files(tmp_path / "new" / "cache"))
    assert {ids.dtype for ids in again} == {np.dtype(np.int32)}
    assert again.lengths().tolist() == [len(ids) for ids in expected]
    assert again[-1].tolist() == expected[-1]


def test_special_tokens_are_added_when_asked_for(tmp_path, tokenizer, expected):
    made = TokenCache(tmp_path, tokenizer=tokenizer, add_special_tokens=True).tokenize(TEXTS)
    assert [ids[1:-1] for ids in as_lists(made)] == expected


def test_a_tokenizer_of_transformers_makes_the_same_files(tmp_path, tiny_bert, tokenizer):
    from transformers import AutoTokenizer

    TokenCache(tmp_path, tokenizer=tokenizer).tokenize(TEXTS)
    assert TokenCache(tmp_path, tokenizer=AutoTokenizer.from_pretrained(tiny_bert)).tokenize(TEXTS).made == 0


def test_nothing_gives_nothing(tmp_path, tokenizer):
    made = TokenCache(tmp_path, tokenizer=tokenizer).tokenize([])
    assert (len(made), as_lists(made), made.lengths().tolist()) == (0, [], [])
    with pytest.raises(IndexError, match="expected a text from 0 to -1, got 0; pass one of them"):
        made[0]


def test_one_text_more_makes_one_shard(tmp_path, tokenizer):
    cache = TokenCache(tmp_path, tokenizer=tokenizer, shard_characters=1)
    before = cache.tokenize(TEXTS)
    more = cache.tokenize([*TEXTS, "new", "new"])
    assert (more.made, more.reused) == (1, before.made + 1)


def test_worker_processes_make_the_same_files(tmp_path, tokenizer, expected):
    alone = TokenCache(tmp_path / "a", tokenizer=tokenizer, shard_characters=20, workers=1).tokenize(TEXTS)
    cache = TokenCache(tmp_path / "b", tokenizer=tokenizer, shard_characters=20, workers=2, serial_below=15)
    together = cache.tokenize(TEXTS)
    assert as_lists(together) == as_lists(alone) == expected
    assert files(tmp_path / "a") == files(tmp_path / "b")
    for name in files(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


settings = st.fixed_dictionaries({"add_special_tokens": st.booleans(), "tokenizers": st.sampled_from(["1", "2"])})
ingredients = st.tuples(st.lists(st.text("ab", max_size=3), max_size=3), st.text("rs", max_size=2), settings)


@given(ingredients, ingredients)
def test_a_key_is_the_same_for_the_same_ingredients_only(one, other):
    keys = [shard_key(texts, rules=rules, settings=settings) for texts, rules, settings in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


def test_the_key_of_today_is_the_key_of_tomorrow():
    key = shard_key(["A text.", "é"], rules="{}", settings={"b": 1, "a": True})
    assert key == shard_key(["A text.", "é"], rules="{}", settings={"a": True, "b": 1})
    assert key == "32f01585c65d6abce0d85b5c86f1d05ead6c88b70a4b5c86436ad9c6a3f1afb8"


def test_the_key_changes_with_the_vocabulary(tmp_path, tokenizer):
    rules = json.loads(tokenizer_rules(tokenizer))
    rules["model"]["vocab"]["river"], rules["model"]["vocab"]["stone"] = (
        rules["model"]["vocab"][word] for word in ("stone", "river")
    )
    other = Tokenizer.from_str(json.dumps(rules))
    first = TokenCache(tmp_path, tokenizer=tokenizer).tokenize(["river"])
    second = TokenCache(tmp_path, tokenizer=other).tokenize(["river"])
    assert second.made == 1
    assert as_lists(first) != as_lists(second)


@given(st.data())
def test_a_damaged_file_is_made_again(tmp_path, tokenizer, expected, data):
    cache = TokenCache(tmp_path, tokenizer=tokenizer)
    cache.tokenize(TEXTS)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        damaged = whole[:place]
    else:
        damaged = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]
    path.write_bytes(damaged)
    again = cache.tokenize(TEXTS)
    assert again.made == 1
    assert as_lists(again) == expected
    assert path.read_bytes() == whole


def test_the_file_of_another_shard_is_not_taken(tmp_path, tokenizer, expected):
    cache = TokenCache(tmp_path, tokenizer=tokenizer)
    cache.tokenize(TEXTS)
    (path,) = tmp_path.iterdir()
    cache.tokenize(["another", *TEXTS[1:]])
    (other,) = (file for file in tmp_path.iterdir() if file != path)
    path.write_bytes(other.read_bytes())
    assert as_lists(cache.tokenize(TEXTS)) == expected


_PROGRAM = """
import sys
from tokenizers import Tokenizer
from narrows.data.token_cache import TokenCache
folder, rules = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
cache = TokenCache(folder, tokenizer=Tokenizer.from_file(rules), shard_characters=50, workers=1)
made = cache.tokenize(f"river {n} runs by the stone" for n in range(300))
print(sum(int(ids.sum()) for ids in made), len(made), flush=True)
"""


def test_two_processes_at_once_write_one_cache(tmp_path, tokenizer):
    rules = tmp_path / "rules.json"
    rules.write_text(tokenizer_rules(tokenizer), encoding="utf-8")
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path / "cache"), str(rules)]
    programs = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [program.stdout.readline() for program in programs] == ["ready\n", "ready\n"]
    for program in programs:
        program.stdin.write("go\n")
        program.stdin.flush()
    said = [program.communicate()[0] for program in programs]
    assert [program.returncode for program in programs] == [0, 0]
    assert said[0] == said[1]
    texts = [f"river {n} runs by the stone" for n in range(300)]
    found = TokenCache(tmp_path / "cache", tokenizer=tokenizer, shard_characters=50).tokenize(texts)
    assert found.made == 0
    tokenize = plain_tokens(tokenizer)
    assert as_lists(found) == [tokenize(text) for text in texts]
    assert all(name.endswith(".safetensors") for name in files(tmp_path / "cache"))


def test_memory_does_not_grow_with_the_corpus(tmp_path, tokenizer):
    cache = TokenCache(tmp_path, tokenizer=tokenizer, shard_characters=20_000)

    def peak(texts):
        tracemalloc.start()
        made = cache.tokenize("river " * 500 + str(n) for n in range(texts))
        assert sum(len(ids) for ids in made) >= 500 * texts
        reached = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return reached

    peak(10)
    # 540,000 characters more; a path for each of 26 shards more.
    assert peak(200) < peak(20) + 80_000


def test_a_corpus_goes_to_another_process_without_its_ids(tmp_path, tokenizer, expected):
    made = TokenCache(tmp_path, tokenizer=tokenizer).tokenize(TEXTS)
    made[0]
    sent = pickle.dumps(made)
    assert len(sent) < 1000
    assert as_lists(pickle.loads(sent)) == expected
    assert isinstance(pickle.loads(sent), TokenizedTexts)


def test_a_corpus_of_many_shards_keeps_few_files_open(tmp_path, tokenizer):
    made = TokenCache(tmp_path, tokenizer=tokenizer, shard_characters=1).tokenize(str(n) for n in range(100))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert len(as_lists(made)) == 100
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 40


def test_a_file_that_is_gone_is_named(tmp_path, tokenizer):
    made = TokenCache(tmp_path, tokenizer=tokenizer).tokenize(TEXTS)
    (path,) = tmp_path.iterdir()
    path.unlink()
    with pytest.raises(UsageError, match=r"\.safetensors: expected token ids of the cache, got .*; tokenize the texts"):
        made[0]


@pytest.mark.parametrize("index", [5, -6])
def test_a_text_that_is_not_there_is_refused(tmp_path, tokenizer, index):
    made = TokenCache(tmp_path, tokenizer=tokenizer).tokenize(TEXTS)
    with pytest.raises(IndexError, match=f"expected a text from 0 to 4, got {index}; pass one of them"):
        made[index]


def test_what_is_no_text_is_refused(tmp_path, tokenizer):
    cache = TokenCache(tmp_path, tokenizer=tokenizer)
    with pytest.raises(UsageError, match="expected texts as strings, got int; pass the text itself"):
        cache.tokenize(["a", 3])
    with pytest.raises(UsageError, match="got half of a surrogate pair at character 1 of '.*; correct or remove it"):
        cache.tokenize(["a\ud800"])
    with pytest.raises(UsageError, match=r"expected a fast tokenizer \(of the tokenizers library\), got int; load it"):
        TokenCache(tmp_path, tokenizer=3)


@pytest.mark.parametrize(("name", "least"), [("workers", 1), ("shard_characters", 1), ("serial_below", 0)])
def test_numbers_out_of_range_are_refused(tmp_path, tokenizer, name, least):
    with pytest.raises(UsageError, match=f"expected {name} of at least {least}, got {least - 1}; pass a larger one"):
        TokenCache(tmp_path, tokenizer=tokenizer, **{name: least - 1})


@pytest.mark.parametrize("workers", [1, 2])
def test_a_place_that_cannot_be_written_is_named(tmp_path, tokenizer, workers):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(
        OutputError, match=r"expected a folder for token ids, got .*file \(File exists\); choose another"
    ):
        TokenCache(blocked, tokenizer=tokenizer).tokenize(TEXTS)
    cache = TokenCache(tmp_path / "cache", tokenizer=tokenizer, workers=workers, serial_below=0)
    cache.tokenize(TEXTS)
    (path,) = (tmp_path / "cache").iterdir()
    path.unlink()
    # A folder in the file's place, which nothing replaces.
    path.mkdir()
    with pytest.raises(OutputError, match=r"expected room and permission to write .*, got Is a directory; make room"):
        cache.tokenize(TEXTS)
    assert files(tmp_path / "cache") == [path.name]


_WITHOUT_GUARD = """
import sys
from tokenizers import Tokenizer
from narrows.data.token_cache import TokenCache
cache = TokenCache(sys.argv[1], tokenizer=Tokenizer.from_file(sys.argv[2]), workers=2, serial_below=0)
cache.tokenize(["a river"])
"""


def test_a_script_without_a_guard_is_told_of_it(tmp_path, tokenizer):
    rules = tmp_path / "rules.json"
    rules.write_text(tokenizer_rules(tokenizer), encoding="utf-8")
    script = tmp_path / "script.py"
    script.write_text(_WITHOUT_GUARD, encoding="utf-8")
    command = [sys.executable, str(script), str(tmp_path / "cache"), str(rules)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr.strip().splitlines()[-1] == (
        "narrows.errors.UsageError: expected worker processes to tokenize to the end, got one that ended; "
        'call it under `if __name__ == "__main__":` in a script, or pass workers=1 where memory is short.'
    )
