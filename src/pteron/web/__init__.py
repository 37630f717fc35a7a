"""A program -> a folder of static files that runs it in a browser: `export_web`.

In: a program or a language model. Out: plans as JSON, weights in chunks, the player (`player.js`, from
web/player) and a page. Nothing here needs a GPU.
"""

from pteron.web.site import Site, export_web

__all__ = ["Site", "export_web"]
