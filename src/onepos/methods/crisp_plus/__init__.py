"""CRISP+: held-out predictions take out the noise of the draw, class priors set the scale."""

from onepos.methods.crisp_plus.method import CRISPPlus

__all__ = ["CRISPPlus"]
