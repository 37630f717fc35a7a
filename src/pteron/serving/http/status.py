"""Routes about the server itself: its models, its health, its metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from pteron.serving.http.service import get_service

router = APIRouter()


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    service = get_service(request)
    return {"object": "list", "data": [service.card(name) for name in service.names]}


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> dict[str, Any]:
    service = get_service(request)
    service.check_name(name)
    return service.card(name)


@router.api_route("/health", methods=["GET", "HEAD"])
async def health(request: Request) -> JSONResponse:
    """200 while requests are accepted; 503 while the server shuts down, or after it has lost its device."""
    service = get_service(request)
    status = "draining" if service.is_draining else "ok" if service.is_healthy else "lost"
    content: dict[str, Any] = {"status": status}
    if service.engine is not None:
        load = service.engine.load
        content |= {"running": load.running, "waiting": load.waiting}
    return JSONResponse(content, 200 if status == "ok" else 503)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    return Response(get_service(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)
