"""The playgrounds: pictures of what lab_engine did, to step through in a notebook. One module a lab."""

from widgets.tour import Tour

__all__ = ["Tour"]
