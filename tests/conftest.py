"""What all tests share: one thread, no network, quick properties, and a few real parts to build on."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

# Set before torch and transformers are imported, which read them once.
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    OMP_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
)

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

torch.set_num_threads(1)

# The shapes in signatures are checked under pytest only; set before the first of these modules is imported.
# `narrows.mulla.flex` and what of `narrows.funnel` is compiled are left out: torch traces the checks with them.
install_import_hook(
    [
        "narrows.core",
        "narrows.deformer.split",
        "narrows.funnel.attention_reference",
        "narrows.funnel.attention_tiled",
        "narrows.inspection.patterns",
        "narrows.inspection.pictures",
        "narrows.losses",
        "narrows.mulla.attention",
        "narrows.mulla.levels",
        "narrows.mulla.reference",
        "narrows.mulla.tiled",
    ],
    "beartype.beartype",
)

# Derandomised: a failure in CI is the failure on a desk. HYPOTHESIS_PROFILE=search looks further.
settings.register_profile(
    "quick",
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("search", settings.get_profile("quick"), max_examples=500, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

ROOT = Path(__file__).resolve().parent.parent

_WORDS = """
a able about above across after again age ago air all along also always am among an and animal another
answer any are area around as ask at away back be bear because bed been before began behind best better
between big bird black blue boat body book both bridge bring brother build built but by call came can car
carry cat change child city clear close cold come could country cut day did do dog door down each early
earth east eat end engine enough even every eye face fact fall family far farm father feet few field find
fire first fish five flow food for found four from full game gave get give go gold good great green
ground group grow had half hand hard has have he head hear help her here high hill him his home horse hot
hour house how i if in into is island it just keep kind king know lake land large last late learn left
less life light like line list little live long look love made make man many map mark me mill mind moon
more most mother mountain much music must my name narrow near never new next night no north not now
number of off old on one only open or other our out over paper part passage people place plant question
rain read red river road room run sea see ship show small so some song sound south stand star still stone
story street sun take tell than that the their them then there these they thing think this three through
time to town tree two under up us very walk wall was water way we well went were west what when where
which white who why wide will wind with wood word work world would year you young
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is none, by name."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; this machine has none"))


@pytest.fixture(scope="session")
def repository_root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data sets: $NARROWS_SHARED, or the folder beside the checkout."""
    named = os.environ.get("NARROWS_SHARED")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs real data sets; set NARROWS_SHARED to the folder that holds them")
    return folder


@pytest.fixture(scope="session")
def in_a_child() -> Callable[..., list[str]]:
    """Runs one order in a child that a waiting process forks, and gives the lines that it reported.

    The process reads orders from its stdin, prints `child PID` once it has forked and `ended` when the child is gone.
    """
    return _in_a_child


def _in_a_child(
    nursery: subprocess.Popen, order: str = "", *, kill_after: tuple[int, float] | None = None
) -> list[str]:
    """`kill_after`: reports, then seconds. Counted in reports, so that a busy machine is not too slow for it."""
    nursery.stdin.write(f"{order}\n")
    nursery.stdin.flush()
    child, lines = 0, []
    while (line := nursery.stdout.readline().strip()) != "ended":
        assert line, nursery.stderr.read()
        if line.startswith("child "):
            child = int(line.split()[1])
        else:
            lines.append(line)
        if kill_after is not None and child and len(lines) >= kill_after[0]:
            time.sleep(kill_after[1])
            # It may have come to its end.
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            kill_after = None
    return lines


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of 5 layers (hidden 24, 3 heads) with its tokenizer, saved as a checkpoint folder.

    The vocabulary holds every lower-case letter and digit, so that any English text is read without [UNK].
    Do not write to the folder: all tests of a worker share it.
    """
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("tiny-bert")
    tokenizer = _word_piece_tokenizer()
    tokenizer.save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertModel(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=24,
                num_hidden_layers=5,
                num_attention_heads=3,
                intermediate_size=40,
                max_position_embeddings=128,
                hidden_dropout_prob=0.1,
                attention_probs_dropout_prob=0.1,
                # Larger than BERT's 0.02: with so few units, small weights would hide a wrong one.
                initializer_range=0.2,
            )
        )
    model.eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A random encoder of transformers with its tokenizer: `tiny_encoder("roberta")`, or with a head for classes:
    `tiny_encoder("bert", labels=["no", "yes"])`; further names go into its config.

    Do not write to the folders: all tests of a worker share them.
    """
    made: dict[str, Path] = {}

    def make(kind: str, labels: list[str] | None = None, **fields: object) -> Path:
        name = repr((kind, labels, sorted(fields.items())))
        if name not in made:
            made[name] = tmp_path_factory.mktemp(f"tiny-{kind}")
            tokenizer = _word_piece_tokenizer()
            tokenizer.save_pretrained(made[name])
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model = _encoder_model(kind, len(tokenizer), labels, fields)
                for parameter in model.parameters():
                    # With so few units, small weights would hide a wrong one.
                    if parameter.ndim > 1:
                        torch.nn.init.normal_(parameter, std=0.2)
            model.eval().save_pretrained(made[name])
        return made[name]

    return make


def _encoder_model(kind: str, vocabulary: int, labels: list[str] | None, fields: dict):
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, FunnelBaseModel

    sizes = {"num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 30, "hidden_size": 24}
    if kind == "distilbert":
        sizes = {"n_layers": 2, "n_heads": 3, "hidden_dim": 30, "dim": 24}
    if kind.startswith("funnel"):
        sizes = {"block_sizes": [1, 1, 1], "n_head": 3, "d_head": 8, "d_inner": 30, "d_model": 24}
    if labels is not None:
        fields = {**fields, "id2label": dict(enumerate(labels)), "label2id": {x: i for i, x in enumerate(labels)}}
    # RoBERTa's positions begin behind the index of its padding.
    positions = 129 if kind == "roberta" else 128
    config = AutoConfig.for_model(
        kind.removesuffix("-base"),
        **{"vocab_size": vocabulary, "max_position_embeddings": positions, "pad_token_id": 0, **sizes, **fields},
    )
    if labels is not None:
        return AutoModelForSequenceClassification.from_config(config)
    if kind == "funnel-base":
        return FunnelBaseModel(config)
    config.architectures = []
    return AutoModel.from_config(config)


def _word_piece_tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.decoders import WordPiece as WordPieceDecoder
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = list("abcdefghijklmnopqrstuvwxyz0123456789")
    marks = list(".,;:!?'\"()[]-–—/&%$€£+*=<>@#_°")
    pieces = special + marks + characters + [f"##{c}" for c in characters] + ["##s", "##ed", "##ing", "##ly"]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces + _WORDS.split()))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=128,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


@pytest.fixture(scope="session")
def tiny_seq2seq(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A random model that writes text, of a kind: `mulla`, `longt5`, `tglobal` or `t5`, with a tokenizer like T5's.

    Do not write to the folders: all tests of a worker share them.
    """
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(f"tiny-{kind}")
            tokenizer = _unigram_tokenizer()
            tokenizer.save_pretrained(made[kind])
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model = _seq2seq_model(kind, len(tokenizer)).eval()
                for name, parameter in model.named_parameters():
                    # So that what is written depends on what is read.
                    if "EncDecAttention" in name:
                        parameter.data.mul_(3)
            model.save_pretrained(made[kind])
        return made[kind]

    return make


def _unigram_tokenizer():
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import Unigram
    from transformers import PreTrainedTokenizerFast

    characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:!?'-"
    pieces = [(word, -4.0) for word in dict.fromkeys(f"▁{word}" for word in _WORDS.split())]
    letters = [(letter, -9.0) for letter in ["▁", *characters]]
    pieces += [piece for piece in letters if piece[0] not in dict(pieces)]
    sentinels = [f"<extra_id_{number}>" for number in range(100)]
    special = ["<pad>", "</s>", "<unk>"]
    vocabulary = [*((name, 0.0) for name in special), *pieces, *((name, 0.0) for name in reversed(sentinels))]
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=2, byte_fallback=False))
    metaspace = {"replacement": "▁", "prepend_scheme": "always", "split": True}
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(**metaspace)]
    )
    tokenizer.decoder = decoders.Metaspace(**metaspace)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=sentinels,
        model_input_names=["input_ids", "attention_mask"],
    )


def _seq2seq_model(kind: str, vocabulary: int):
    from transformers import LongT5Config, LongT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration

    from narrows.mulla import MullaT5Config, MullaT5ForConditionalGeneration

    sizes = {
        "vocab_size": vocabulary,
        "d_model": 16,
        "d_kv": 6,
        "d_ff": 24,
        "num_layers": 2,
        "num_heads": 2,
        "decoder_start_token_id": 0,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 20,
        "dropout_rate": 0.1,
        # A tied output layer of a random model writes its start token for ever.
        "tie_word_embeddings": False,
    }
    if kind == "mulla":
        return MullaT5ForConditionalGeneration(MullaT5Config(**sizes, local_radius=4, pooling_rate=3))
    if kind == "t5":
        return T5ForConditionalGeneration(T5Config(**sizes))
    attention = {"longt5": "local", "tglobal": "transient-global"}[kind]
    return LongT5ForConditionalGeneration(
        LongT5Config(**sizes, local_radius=7, global_block_size=4, encoder_attention_type=attention)
    )
