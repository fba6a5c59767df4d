"""Flows as a core: a cell takes input, keeps state and fills slots, and its journal says how far. Pure."""

from oncelog.flow.cell import Cell
from oncelog.flow.description import Holder, Input, Limits, OutputPlace, Stage

__all__ = ["Cell", "Holder", "Input", "Limits", "OutputPlace", "Stage"]
