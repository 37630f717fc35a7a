"""examples/rank_sentences.py: a small untrained model, and all-MiniLM-L6-v2 on English sentences.

scripts/test --heavy tests/examples
"""

from __future__ import annotations

import pytest
import rank_sentences
import torch
from models import minilm

DIFFERENCE_MAX = 1e-4  # of the elements of vectors of length one


@pytest.mark.long
@pytest.mark.export
def test_a_small_model_ranks_as_in_pytorch_at_any_length() -> None:
    torch.manual_seed(0)
    model = minilm.MiniLM(vocabulary=101, positions=64, width=24, heads=3, wide=40, layers=2).eval()
    compiled = rank_sentences.compile_for_any_length(model, tokens_max=37)
    with compiled:
        question, *sentences = (torch.randint(101, (length,)) for length in (5, 37, 2, 13, 31))
        ranking = rank_sentences.rank(model, compiled, question, sentences)
    assert ranking.same_order
    assert ranking.difference_max < DIFFERENCE_MAX
    assert sorted(ranking.order) == [0, 1, 2, 3]
    assert ranking.cosines == sorted(ranking.cosines, reverse=True)


@pytest.mark.heavy
def test_it_ranks_by_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer = minilm.trained()
    tokens = rank_sentences.tokenize(tokenizer, (rank_sentences.QUESTION, *rank_sentences.SENTENCES))
    assert len({len(sentence) for sentence in tokens}) > 4  # lengths differ, so shapes are live
    with rank_sentences.compile_for_any_length(model) as compiled:
        ranking = rank_sentences.rank(model, compiled, tokens[0], tokens[1:])
        assert "on the host  0 operators" in str(compiled)
    assert set(ranking.order[:2]) == {0, 2}  # the two about teaching animals
    assert ranking.same_order
    assert ranking.difference_max < DIFFERENCE_MAX


@pytest.mark.heavy
def test_the_script_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    rank_sentences.main(["A man is eating food.", "The market fell.", "Someone has a piece of bread."])
    said = capsys.readouterr().out
    assert said.index("a piece of bread") < said.index("The market fell")
    assert "the ranking is the same" in said
