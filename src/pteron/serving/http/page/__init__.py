"""THE PAGE AT `/`: a chat in the browser, of static files: no build, and nothing from elsewhere."""

from pteron.serving.http.page.mounting import POLICY, Part, mount, parts

__all__ = ["POLICY", "Part", "mount", "parts"]
