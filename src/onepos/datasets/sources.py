"""The data sets onepos knows by name: where their files are and what they must look like."""

from dataclasses import dataclass
from typing import Literal

EMBEDDED = "digit-scenes"

_MULAN = "https://raw.githubusercontent.com/tsoumakas/mulan/HEAD/data/multi-label"
_BOOMER = "https://raw.githubusercontent.com/mrapp-ke/Boomer/1b6f0909fe2191ff1cd5748d65f5c57ae3ff4054/data"


_SHA256 = {
    "image-train.arff": "26bdac46f5eda9aa44adf8496787242a5a9d3cd2c5fa284d36b9d5221e0b92b6",
    "image-test.arff": "7ae850e486b4490b2fa55a06c0b67f2b5bf5406fbf9f2b80fc78acffa2066a26",
    "image.xml": "d1feb933924093f582052b20a1c1417ebcca5ca6267c5973fdc32a2f49014afc",
    "scene-train.arff": "b53ba93bdf412de922e3960389bcee24744fa3e872ce610511fc1d750888b64d",
    "scene-test.arff": "ea38d20296b3ff7e220f477a3b802a9bcb2d768881fe6ee163efbc97ea527a42",
    "scene.xml": "55d8b247b949ad5c52e5a73d8c6775ec6e5469ce9682465b45b333b68ee4bcc5",
    "yeast-train.arff": "e759dc991ff54694a4ff9c4314f3be0d6fd2b1994a4b563f57e416394c6aebbd",
    "yeast-test.arff": "4aaac102bff9669a765bf0b378602e5cc8c3b181048282e2f003117b496d552a",
    "yeast.xml": "c3056cc26444b5158b1588d1b73bec9c45429e10f0957ad085903423cb81f247",
    "Corel5k-train-sparse.arff": "19eb253c447144bea74ffa86b4731a56022addae2ba7d0aab72ad07fdc02e9b3",
    "Corel5k-test-sparse.arff": "e8f8e9cd052c43ba7bdfdf99d242f461fc8c2a03163466d921e576887b51d8a7",
    "Corel5k.xml": "54ef6a6ccb7ca9b77524052b34b306d5d501661a5609b9d1cc7085b2b597679d",
    "delicious-train.arff": "030186cdb542ebdd32052fcdbb1ebe30115b3a22518c1b4b198c45eb827aebe1",
    "delicious-test.arff": "2dfb01723a819914b0ca83361177ed413ce3f2169851d9f228d4692915d63944",
    "delicious.xml": "4e0c0f93c7d86a39b9fca4aaefaa00e9428f2c80277732dfbf03ca48e2c14da2",
    "voc2012_labels.npz": "6fb57b4d6612439278a24fcaf9df8b7f8232e7b12c05405e0a123bcf60f8dfe3",
    "voc2012_effnetlite0.npz": "cf65139250273c4801207e1a96e6706fcfaf0ca1556b87cb852c3787c201beb7",
    "coco2014_labels.npz": "1c892c4bab9d147fdccd340638b5d1abbbdc2b3b099684930ecb8cb9dd150780",
    "coco2014_24k_effnetlite0.npz": "b3a6096c8158cbb43f70b46198983212e843beae66e483260cd069147ac773a5",
}


@dataclass(frozen=True)
class RemoteFile:
    """One file: its name on disk, its address and the checksum of its uncompressed content ("" where there is none)."""

    name: str
    url: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Source:
    """A data set known by name; the three numbers are those of the variant used in the paper.

    `files` are the train part, the test part and the XML file (ARFF), or the labels and the features of images. Where
    `drop_unlabelled` is set, rows without a label are left out on loading.
    """

    title: str
    n_samples: int
    n_features: int
    n_labels: int
    files: tuple[RemoteFile, ...] = ()
    kind: Literal["arff", "mat", "features", "generated"] = "arff"
    drop_unlabelled: bool = False
    note: str = ""


def _arff(folder: str, stem: str, suffix: str = "") -> tuple[RemoteFile, ...]:
    """Train part, test part and label file of an ARFF data set."""
    names = (f"{stem}-train{suffix}.arff", f"{stem}-test{suffix}.arff", f"{stem}.xml")
    return tuple(RemoteFile(name, f"{folder}/{name}", _SHA256[name]) for name in names)


def _image_features(images: str, n_samples: int, n_labels: int, labels: str, features: str) -> Source:
    title = f"{images} as features of EfficientNet-Lite0, {n_labels} labels"
    note = (
        f"These features are not published. Supply {labels} (the labels of the official lists) and {features} (1 280 "
        "pooled outputs of EfficientNet-Lite0 per image, squashed to 224 × 224)."
    )
    files = tuple(RemoteFile(name, sha256=_SHA256[name]) for name in (labels, features))
    return Source(title, n_samples, 1280, n_labels, files, "features", note=note)


DATASETS: dict[str, Source] = {
    EMBEDDED: Source(
        "6 000 images of one to four handwritten digits, 10 labels",
        6000,
        256,
        10,
        kind="generated",
        note="Generated from the digits inside scikit-learn; needs no download.",
    ),
    "image": Source("2 000 natural scene images, 5 labels (Zhou and Zhang)", 2000, 294, 5, _arff(_BOOMER, "image")),
    "scene": Source(
        "2 407 scene images, 6 labels (Boutell et al.)",
        2407,
        294,
        6,
        _arff(f"{_MULAN}/scene", "scene"),
        note="93 % of the rows have one label only, so one positive is almost full supervision.",
    ),
    "yeast": Source(
        "2 417 yeast genes, 14 functional classes (Elisseeff and Weston)",
        2417,
        103,
        14,
        _arff(f"{_MULAN}/yeast", "yeast"),
    ),
    "corel5k": Source(
        "5 000 images as sets of regions, 374 words (Duygulu et al.)",
        5000,
        499,
        374,
        _arff(f"{_MULAN}/corel5k", "Corel5k", "-sparse"),
        note="27 labels have a single positive row; a test part leaves many labels without one.",
    ),
    "mirflickr": Source(
        "MIRFLICKR-25K images, 38 labels (Huiskes and Lew)",
        24581,
        1000,
        38,
        (RemoteFile("mirflickr.mat"),),
        kind="mat",
        note="The 1 000 features of this variant are not published. Supply mirflickr.mat in the layout of the "
        "SMILE code (X, Y, Y_obs, tr_idx, va_idx, te_idx).",
    ),
    "delicious": Source(
        "16 091 bookmarked web pages, 983 tags (Tsoumakas et al.)",
        16091,
        500,
        983,
        _arff(f"{_MULAN}/delicious", "delicious"),
        drop_unlabelled=True,
        note="The 14 rows without a label are left out on loading (16 105 in the files).",
    ),
    "voc2012-features": _image_features(
        "11 540 images of PASCAL VOC 2012", 11540, 20, "voc2012_labels.npz", "voc2012_effnetlite0.npz"
    ),
    "coco2014-features": _image_features(
        "24 000 images of MS-COCO 2014", 24000, 80, "coco2014_labels.npz", "coco2014_24k_effnetlite0.npz"
    ),
}
