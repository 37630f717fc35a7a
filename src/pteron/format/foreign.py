"""The first bytes and the name of a file -> what it is, if it is no ExecuTorch program, and what to do."""

from __future__ import annotations

HEAD_BYTES = 512  # of a file, enough to recognise it

_NATIVE_ENTRY = b"program.ptg"  # the first entry in a zip archive of ExecuTorch's native backend
_NAME_IN_ZIP = 30  # where the name of a zip archive's first entry begins
_COMPILE = "load it with PyTorch and give the model to pteron.compile"
_NO_MODEL = "a model is a .pte program, a GGUF file, a checkpoint folder or a name"
_POINTER = (
    "a pointer of Git LFS, without the file's content",
    "`git lfs pull` in its folder downloads it",
)
_PAGE = ("a web page (HTML)", "the download gave a page instead of the file; download it again")
_UNPACK = "unpack it and give the model inside"
RE_EXPORT = "re-export the model with pteron.compile or ExecuTorch's VulkanPartitioner"

_OURS = (b"ET12", b"BP08", b"FT01")  # programs, bundled programs, weight files
_IMAGES = {
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
}
# The first bytes of a file -> what it is, what to do
_BEGINNINGS = {
    b"GGUF": ("a language model (GGUF)", "give it to pteron.llm.LLM, `pteron chat` or `pteron serve`"),
    b"PK\x03\x04": ("a zip archive, as torch.save and torch.export.save write, not a .pte program", _COMPILE),
    b"\x1f\x8b": ("an archive (gzip)", _UNPACK),
    b"7z\xbc\xaf": ("an archive (7z)", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("an archive (zstd)", _UNPACK),
    b"\xfd7zXZ": ("an archive (xz)", _UNPACK),
    b"\x89HDF": ("an HDF5 file, as Keras writes", "only models of PyTorch and ExecuTorch can be used"),
    b"%PDF": ("a PDF document", _NO_MODEL),
    b"version https://git-lfs": _POINTER,
    b"<!doctype html": _PAGE,
    b"<html": _PAGE,
}  # fmt: skip
_FLATBUFFERS = {
    b"NPTG": ("a program of ExecuTorch's native backend (.ptn)", RE_EXPORT),
    b"TFL3": ("a TensorFlow Lite model", "only models of PyTorch and ExecuTorch can be used"),
}
_PROGRAMS = (".pte", ".bpte", ".ptd")
_SUFFIXES = {
    ".onnx": ("an ONNX model", "export the PyTorch model that it was made from, with pteron.compile"),
    ".safetensors": (
        "weights (safetensors) without the model that they belong to",
        "give the folder with config.json and these weights",
    ),
    ".ptl": ("a program of PyTorch Mobile", _COMPILE),
}


def describe_foreign(head: bytes, name: str) -> str | None:
    """What a file is and what to do with it, in a sentence without its name; None for what may be a program.
    `head` are the file's first bytes, `name` is its name."""
    found = _recognise(head, name.lower())
    return f"{found[0]}; {found[1]}" if found else None


def describe_placeholder(head: bytes) -> str | None:
    """What a file is and what to do, if it stands in the place of the one that its name promises: a pointer
    of Git LFS or a web page."""
    found = _recognise(head[:HEAD_BYTES], "")
    return f"{found[0]}; {found[1]}" if found and found in (_POINTER, _PAGE) else None


def _recognise(head: bytes, name: str) -> tuple[str, str] | None:
    if not head:
        return "an empty file", "download or export it again"
    if head[4:8] in _OURS:
        return None
    if head[4:8] in _FLATBUFFERS:
        return _FLATBUFFERS[head[4:8]]
    if head.startswith(b"PK\x03\x04") and head[_NAME_IN_ZIP:].startswith(_NATIVE_ENTRY):
        return _FLATBUFFERS[b"NPTG"]
    begun = head.lstrip().lower() if head.lstrip()[:1] == b"<" else head
    for beginning, described in _BEGINNINGS.items():
        if begun.startswith(beginning):
            return described
    for beginning, image in _IMAGES.items():
        if head.startswith(beginning):
            return f"an image ({image})", _NO_MODEL
    if head.startswith(b"RIFF") and head[8:12] in (b"WEBP", b"WAVE"):
        return ("an image (WebP)" if head[8:12] == b"WEBP" else "a sound (WAV)"), _NO_MODEL
    # A zero would follow in a llama2.c model of width 640, which begins alike.
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and head[2:3] != b"\0":
        return "a pickle, as torch.save wrote before version 1.6", _COMPILE
    if head[8:9] == b"{" and not any(head[5:8]):  # the length of a header, then the header
        return _SUFFIXES[".safetensors"]
    if head.lstrip()[:1] == b"{" and head.isascii():
        return "a JSON file", "give the folder of the model, or its program (.pte)"
    suffix = name[name.rfind(".") :] if "." in name else ""
    if suffix not in _PROGRAMS and all(byte >= 32 or byte in b"\t\n\r" for byte in head):
        return "a text file", _NO_MODEL
    return _SUFFIXES.get(suffix)
