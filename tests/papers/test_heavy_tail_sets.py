"""The data, models and figures of the heavy-tail reproduction, on small stand-ins."""

from __future__ import annotations

import struct
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from apportion.training.layers import supported
from papers.heavy_tail import barcode, figures, llama, synthetic, tables, text, trainings
from papers.heavy_tail.long_tail import long_tail
from papers.heavy_tail.models import SmallCnn, SmallTransformer, loss_per_row, mean_over_positions

torch.set_num_threads(1)  # models this small gain nothing from more


def test_barcode_digits_have_the_papers_numbers_of_images_and_classes():
    assert sum(classes * size for classes, size in barcode.SIZES) == 23_770
    assert sum(classes for classes, _ in barcode.SIZES) == 330


def test_drawn_barcode_digits_differ_by_digit_and_code(tmp_path):
    data = barcode.barcode_digits(tmp_path, ((10, 6), (20, 3), (5, 2)))
    assert data.source == "drawn digits"
    assert data.pixels.shape == (60 + 60 + 10, 1, 28, 28)
    assert np.bincount(data.labels).tolist() == [6] * 10 + [3] * 20 + [2] * 5
    assert data.pixels.min() >= 0
    assert data.pixels.max() <= 1
    codes = {tuple(image[0, 0, :10]) for image in data.pixels[60:]}
    assert len(codes) == 25
    again = barcode.barcode_digits(tmp_path, ((10, 6), (20, 3), (5, 2)))
    assert np.array_equal(data.pixels, again.pixels)


def test_mnist_is_read_from_arrays_where_there_is_no_parquet(tmp_path):
    rng = np.random.default_rng(0)
    image, label = rng.integers(0, 256, (200, 28, 28), dtype=np.uint8), np.repeat(np.arange(10), 20)
    np.savez(tmp_path / "train.npz", image=image, label=label)
    data = barcode.barcode_digits(tmp_path, ((10, 6), (5, 2)))
    assert data.source == "MNIST"
    known = {plain.tobytes() for plain in image[label == 3]}
    taken = np.rint(255 * data.pixels[data.labels == 3, 0]).astype(np.uint8)
    assert all(one.tobytes() in known for one in taken)


def test_generated_text_is_long_tailed_and_has_something_to_learn():
    data = text.generated(500, 12, 60, 0)
    counts = np.sort(np.bincount(data.targets.ravel(), minlength=60))[::-1]
    assert counts[0] > 8 * counts[30]
    follows = {}
    for one, other in zip(data.inputs.ravel(), data.targets.ravel(), strict=True):
        follows.setdefault(one, []).append(other)
    often = [np.bincount(after).max() / len(after) for after in follows.values() if len(after) > 50]
    assert np.mean(often) > 0.45
    assert np.array_equal(data.inputs[:, 1:], data.targets[:, :-1])


def test_penn_treebank_is_read_with_the_public_files_list_of_words(tmp_path):
    (tmp_path / "ptb.train.txt").write_text("a b c d e f\n" * 40, encoding="utf-8")
    for part in ("valid", "test"):
        (tmp_path / f"ptb.{part}.txt").write_text("a a a b b c\n" * 10, encoding="utf-8")
    private, public = text.penn_treebank(tmp_path, 20, length=6, vocabulary=4)
    assert private.source == "Penn Treebank"
    assert private.inputs.shape == (20, 6)
    assert private.targets.max() == 3  # words beyond the list of three are one token
    assert (private.targets == 3).mean() > 0.3
    assert public.inputs.shape[1] == 6


def test_the_models_come_in_factors_and_score_classes_on_axis_one():
    cnn, transformer = SmallCnn(7), SmallTransformer(50, width=16, blocks=1, length=8)
    assert supported(cnn)
    assert supported(transformer)
    assert cnn(torch.rand(3, 1, 28, 28)).shape == (3, 7)
    tokens = torch.randint(50, (3, 8))
    assert transformer(tokens).shape == (3, 50, 8)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 50
    same = torch.isclose(transformer(tokens), transformer(changed)).all(1)
    assert same[:, :5].all()  # what comes later is not seen
    assert not same[:, 5:].all()
    assert mean_over_positions(transformer(tokens), tokens).shape == (3,)


def checkpoint_bytes(width=8, hidden=12, layers=2, heads=2, vocabulary=264, context=16):
    rng = np.random.default_rng(0)
    half = width // heads // 2
    shapes = [
        (vocabulary, width), (layers, width), (layers, width, width), (layers, width, width), (layers, width, width),
        (layers, width, width), (layers, width), (layers, hidden, width), (layers, width, hidden),
        (layers, hidden, width), (width,), (context, half), (context, half),
    ]  # fmt: skip
    tensors = b"".join((0.3 * rng.standard_normal(shape)).astype("<f4").tobytes() for shape in shapes)
    words = [b"<unk>", b"<s>", b"</s>", *(bytes([b]) for b in range(256)), b" ", b" a", b"ab", b" ab", b"abc"]
    scores = [0.0] * 259 + [0.0, -3.0, -1.0, -2.0, -4.0]
    tokens = b"".join(struct.pack("<fi", s, len(w)) + w for w, s in zip(words, scores, strict=True))
    return struct.pack("<7i", width, hidden, layers, heads, heads, vocabulary, context) + tensors + b"\4\0\0\0" + tokens


def test_a_checkpoint_in_the_legacy_layout_is_read_and_merges_follow_scores(tmp_path):
    (tmp_path / "weights").write_bytes(checkpoint_bytes())
    held = llama.read_checkpoint(tmp_path / "weights")
    assert held.sizes == (8, 12, 2, 2, 2, 264, 16)
    assert held.tensors["down"].shape == (2, 8, 12)
    encode = llama.Tokenizer(held)
    assert [held.tokens[code] for code in encode("ab c")] == [b" ab", b" ", b"c"]
    assert [held.tokens[code] for code in encode("é")] == [b" ", b"\xc3", b"\xa9"]


def test_low_rank_updates_start_at_the_pretrained_model_and_are_all_that_is_trained(tmp_path):
    (tmp_path / "weights").write_bytes(checkpoint_bytes())
    held = llama.read_checkpoint(tmp_path / "weights")
    one, other = (llama.LowRankLlama(held, np.arange(20), rank=2, seed=seed) for seed in (0, 1))
    tokens = torch.randint(264, (2, 6))
    assert torch.allclose(one(tokens), other(tokens))  # updates are zero at first, whatever their other half is
    assert one(tokens).shape == (2, 20, 6)
    assert supported(one)
    assert sum(p.numel() for p in one.parameters()) == 2 * 2 * 2 * (8 * 2)
    with torch.no_grad():
        one.layers[0].values.up.weight.fill_(0.5)
    assert not torch.allclose(one(tokens), other(tokens))


def test_trainings_are_tuned_by_loss_and_kept_in_a_file(tmp_path, monkeypatch):
    from apportion.training import ExampleRows, Watch

    data = barcode.barcode_digits(tmp_path, ((10, 6), (5, 2)))
    inputs, targets = torch.as_tensor(data.pixels), torch.as_tensor(data.labels)
    rates = {"DP-GD": (1e-6, 0.5), "DP-GDM": (0.1,), "DP-Adam": (1e-3,), "DP-AdamBC": (1e-3,)}
    regime = trainings.Regime(1.0, 0.5, 1.0, 5, 70, rates, looks=1)

    def compare():
        return trainings.compare(
            lambda: SmallCnn(15), loss_per_row, ExampleRows(inputs, targets), Watch(inputs, targets, data.groups, 2),
            regime, seeds=range(2), kept=tmp_path / "runs.jsonl",
        )  # fmt: skip

    found = compare()
    assert found["optimizers"]["DP-GD"]["rate"] == 0.5
    assert found["optimizers"]["DP-GD"]["rate at the edge of the grid"]
    assert [run["seed"] for run in found["optimizers"]["DP-Adam"]["runs"]] == [0, 1]
    assert found["epsilon"][0] == 0
    assert found["epsilon"][-1] == pytest.approx(regime.epsilon, abs=1e-3)
    monkeypatch.setattr(trainings, "train", None)  # nothing is trained twice
    assert compare() == found
    pictures = figures.of_trainings(found, "digits", ["frequent", "rare"])
    for markup in pictures.values():
        assert len(ElementTree.fromstring(markup).findall("{*}path")) == 4 * 3


def test_the_figures_of_the_synthetic_study_have_a_line_for_every_optimizer_in_every_panel():
    problem = synthetic.Problem(1.0, 2.0, 6)
    study = synthetic.study(problem, long_tail(3, 2), "cpu", seeds=range(1, 2), brief=True)
    pictures = figures.of_synthetic(study, groups=(0, 2))
    assert len(ElementTree.fromstring(pictures["loss"]).findall("{*}path")) == 4 * 3
    assert len(ElementTree.fromstring(pictures["accuracy"]).findall("{*}path")) == 4 * 2
    written = tables.to_markdown(study)
    assert written.count("| DP-AdamBC |") == 2
    rarest = study["optimizers"]["DP-GDM"]["rarest"]["group accuracy"][-1]
    assert f"| {100 * rarest:.1f} |" in written
    assert study["epsilon"][-1] == pytest.approx(synthetic.epsilon_after(6, 2.0), abs=1e-3)
