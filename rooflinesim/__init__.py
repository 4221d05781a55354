"""rooflinesim: an analytical roofline model of speculative decoding."""

__version__ = "0.1.0"
