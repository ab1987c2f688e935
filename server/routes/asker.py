"""Who asks: the caller's key, its tenant, and which of the tenant's users it is.

A user is who the client says: in the body's `user`, as OpenAI's and Tabby's clients write it, or in
a header `X-User-ID`, as a proxy may that knows its users. Else a typing session is taken for one,
and else all who send one key, or come from one address. That is believed inside a tenant, where it
decides about turns and nothing else; what a tenant may have and whose prompts it shares follow from
its keys alone.
"""

from __future__ import annotations

from dataclasses import replace

from starlette.datastructures import Headers
from starlette.types import Scope

from suture.server.request import CompletionRequest
from suture.server.tenants import Tenant

# The keys of an ASGI scope under which are: the name of the caller's key, its tenant, both only
# where there are keys; and the name of who has no other one.
CALLER = "suture.caller"
TENANT = "suture.tenant"
CLIENT = "suture.client"
USER_HEADER = "x-user-id"
# Longer ones are as good as their beginnings.
MAX_USER_CHARS = 256


def asked_by(request: CompletionRequest, scope: Scope) -> CompletionRequest:
    """The same with its tenant and user; its session is the caller's own, as two keys may use one
    name."""
    session = request.session
    if session is not None:
        session = f"{scope.get(CALLER, '')}/{session}"
    tenant = tenant_of(scope)
    return replace(
        request,
        session=session,
        tenant=tenant.name if tenant else None,
        user=user_of(scope, request.user, session),
        cache_salt=tenant.cache_salt if tenant else None,
    )


def user_of(scope: Scope, named: str | None = None, session: str | None = None) -> str | None:
    """The user that a body names, or what else is known of who asks; None where nothing is."""
    header = Headers(scope=scope).get(USER_HEADER, "").strip()
    user = named or header or session or scope.get(CLIENT)
    return str(user)[:MAX_USER_CHARS] if user else None


def tenant_of(scope: Scope) -> Tenant | None:
    """The tenant that the caller's key is of; None where there are no keys."""
    tenant = scope.get(TENANT)
    return tenant if isinstance(tenant, Tenant) else None
