"""Speech to text: sound files -> samples -> spectrograms -> segments of text, by a Whisper's two programs."""

from pteron.speech.transcriber import Segment, Transcriber, is_transcriber

__all__ = ["Segment", "Transcriber", "is_transcriber"]
