"""Peers, measured beside Perdure: one module each, all with the interface of `peer.py`.

They come from the public package registries, by this machine's own settings, at the versions pinned here, into
~/.cache/perdure/bench. One that cannot be had is left out, with the reason.
"""
