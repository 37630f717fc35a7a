"""Chat templates are programs of strangers: a sandbox that bounds what they may take."""
