"""The OpenAPI document. The statuses that a route can return follow from its rule in the table of roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from pvdm.api.errors import ErrorResponse, OAuthErrorResponse
from pvdm.api.service import ReadinessView
from pvdm.steward.http.body import MODEL_ATTRIBUTE
from pvdm.steward.http.roles import RULES, Body, Rule
from pvdm.steward.http.routes import methods_of
from pvdm.version import __version__

_STATUS_DESCRIPTIONS: Final = {
    400: "The request cannot be accepted as it is",
    401: "The token is missing, unknown, revoked or expired",
    403: "Role, domain or attempt of the token do not allow it",
    404: "There is no such object",
    408: "The body did not come in time",
    409: "Another request was first, or the state does not allow it; nothing happened",
    413: "The body is too large",
    415: "The body is of another type",
    422: "A check failed",
    429: "Too many requests; Retry-After says when to retry",
    500: "A bug, or a state that is unknown: read the state before you retry",
    503: "A part cannot be reached, or the clock has jumped; Retry-After says when to retry",
}
_REF: Final = "#/components/schemas/{model}"


def raw_response(media_type: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI response of a route that returns this media type instead of a model."""
    schema = {} if media_type == "application/json" else {"type": "string"}
    return {200: {"description": "Successful Response", "content": {media_type: {"schema": schema}}}}


def build_document(routes: Sequence[APIRoute]) -> dict[str, Any]:
    """The document of all routes but the catalog's, which Iceberg's REST specification describes."""
    routes = [route for route in routes if route.include_in_schema]
    document = get_openapi(
        title="pvdm Steward",
        version=__version__,
        description="Keys, signed proofs, nonce ledger and transparency log of one notary.",
        routes=routes,
    )
    bodies = {id(route): _body_model(route) for route in routes}
    _add_schemas(document, [model for model in bodies.values() if model is not None])
    for route in routes:
        for method in methods_of(route):
            operation = document["paths"][route.path_format][method.lower()]
            _complete_operation(operation, RULES[method, route.path], route, bodies[id(route)])
    document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return document


def statuses(rule: Rule, path: str) -> tuple[int, ...]:
    """Every status except 200 that a route can return."""
    found = {400, 500, 503}
    if rule.limited:
        found |= {429}
    if not rule.public:
        found |= {401, 403, 409, 422}
    if "{" in path or rule.names_an_object:  # the path, the query or the body names an object
        found |= {404}
    if rule.body is not Body.NONE:
        found |= {408, 413}
    if rule.body in (Body.JSON, Body.ENVELOPE, Body.FORM):
        found |= {415}
    if rule.body is Body.FORM:
        found |= {401}  # client credentials may be wrong
    if rule.body is Body.ENVELOPE:
        found |= {404}  # a statement names objects
    return tuple(sorted(found))


def _complete_operation(operation: dict[str, Any], rule: Rule, route: APIRoute, model: type[BaseModel] | None) -> None:
    responses = operation["responses"]
    responses.pop("422", None)  # FastAPI's own: the Steward sends 400 for a wrong parameter
    error_content = _json_content(_schema_ref(OAuthErrorResponse if rule.body is Body.FORM else ErrorResponse))
    for status in statuses(rule, route.path):
        responses[str(status)] = {"description": _STATUS_DESCRIPTIONS[status], "content": error_content}
    if route.path == "/readyz":
        schema = {"anyOf": [_schema_ref(ReadinessView), _schema_ref(ErrorResponse)]}
        responses["503"] = {"description": "Not ready, with every reason", "content": _json_content(schema)}
    operation["security"] = [] if rule.public else [{"bearer": []}]
    if model is not None:
        operation["requestBody"] = {"required": True, "content": _json_content(_schema_ref(model))}
    elif rule.body is Body.EMPTY:
        operation["requestBody"] = {"required": False, "content": _json_content({"type": "object", "maxProperties": 0})}
    elif rule.body is Body.FORM:
        operation["requestBody"] = {"required": True, "content": {"application/x-www-form-urlencoded": _form_content()}}


def _form_content() -> dict[str, Any]:
    text = {"type": "string", "maxLength": 256}
    fields = {"grant_type": {"type": "string", "const": "client_credentials"}, "scope": text}
    fields |= {"client_id": text, "client_secret": {**text, "format": "password"}}
    return {"schema": {"type": "object", "properties": fields, "required": ["grant_type"]}}


def _json_content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _schema_ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _body_model(route: APIRoute) -> type[BaseModel] | None:
    for dependency in route.dependant.dependencies:
        model: type[BaseModel] | None = getattr(dependency.call, MODEL_ATTRIBUTE, None)
        if model is not None:
            return model
    return None


def _add_schemas(document: dict[str, Any], bodies: Sequence[type[BaseModel]]) -> None:
    wanted: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = [
        (model, "validation") for model in sorted(set(bodies), key=lambda model: model.__name__)
    ]
    wanted += [(model, "serialization") for model in (ErrorResponse, OAuthErrorResponse, ReadinessView)]
    _, schemas = models_json_schema(wanted, ref_template=_REF)
    components = document["components"].setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        components.pop(name, None)
    for name, schema in schemas["$defs"].items():
        components.setdefault(name, schema)
