"""A path or a name of a hub, such as `owner/name:file.pte`, enters; files on this machine leave."""
