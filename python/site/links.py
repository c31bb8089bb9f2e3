"""Links that lead out of the documentation, into the tree: on the site they are words."""

import posixpath
import re

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def on_page_markdown(markdown, page, files, **_):
    """Called by mkdocs for each page."""
    here = posixpath.dirname(page.file.src_uri)

    def leads(link):
        target = posixpath.normpath(posixpath.join(here, link.group(2).split("#")[0]))
        there = files.get_file_from_path(target)
        return link.group(0) if there is not None else link.group(1)

    return LINK.sub(leads, markdown)
