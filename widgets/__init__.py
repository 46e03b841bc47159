"""The playgrounds: pictures of what lab_engine did, to step through in a notebook. One module a lab."""

from widgets.decoder import BugDesk
from widgets.gemv import Roofline
from widgets.gemv_int8 import Int8Times
from widgets.gemv_loads import WarpLoads
from widgets.int4_group import OneGroup
from widgets.int4_word import WordUnpack
from widgets.kv_pages import KVPages
from widgets.nanoqwen_file import FileMap
from widgets.paged_attention import TailLens
from widgets.tour import Tour

__all__ = [
    "BugDesk",
    "FileMap",
    "Int8Times",
    "KVPages",
    "OneGroup",
    "Roofline",
    "TailLens",
    "Tour",
    "WarpLoads",
    "WordUnpack",
]
