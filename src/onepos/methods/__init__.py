"""METHODS: the papers' names → a factory of the method."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from onepos.methods.an import AN as AN
from onepos.methods.an_ls import ANLS as ANLS
from onepos.methods.base import Method as Method
from onepos.methods.boostlu import BoostLU as BoostLU
from onepos.methods.crisp import CRISP as CRISP
from onepos.methods.crisp_plus.method import CRISPPlus as CRISPPlus
from onepos.methods.em import EM as EM
from onepos.methods.em_apl import EMAPL as EMAPL
from onepos.methods.epr import EPR as EPR
from onepos.methods.full import Full as Full
from onepos.methods.gr import GR as GR
from onepos.methods.large_loss import LargeLoss as LargeLoss
from onepos.methods.mime import MIME as MIME
from onepos.methods.plc import PLC as PLC
from onepos.methods.role import ROLE as ROLE
from onepos.methods.smile import SMILE as SMILE
from onepos.methods.wan import WAN as WAN
from onepos.validation import suggest

METHODS: dict[str, Callable[..., Method]] = {
    "full": Full,
    "an": AN,
    "an-ls": ANLS,
    "wan": WAN,
    "epr": EPR,
    "role": ROLE,
    "em": EM,
    "em-apl": EMAPL,
    "smile": SMILE,
    "mime": MIME,
    "plc": PLC,
    "ll-r": partial(LargeLoss, variant="reject"),
    "ll-ct": partial(LargeLoss, variant="correct"),
    "ll-cp": partial(LargeLoss, variant="permanent"),
    "boostlu+ll-r": partial(BoostLU, variant="reject", delta_rel=0.5),
    "boostlu+ll-ct": partial(BoostLU, variant="correct", delta_rel=0.2),
    "boostlu+ll-cp": partial(BoostLU, variant="permanent", delta_rel=0.1),
    "gr": GR,
    "crisp": CRISP,
    "crisp-as-published": CRISP.as_published,
    "crisp-3ep": partial(CRISP.as_published, every=3),
    "crisp-val": partial(CRISP.as_published, prior="validation"),
    "crisp-plus": CRISPPlus,
}


def make_method(name: str, **parameters: object) -> Method:
    """The method of this name with the given parameters."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; {suggest(name, METHODS)}")
    allowed = METHODS[name]().get_params()
    for parameter in parameters:
        if parameter not in allowed:
            hint = suggest(parameter, allowed) if allowed else "it has none."
            raise ValueError(f"unknown parameter {parameter!r} of {name}; {hint}")
    return METHODS[name](**parameters)
