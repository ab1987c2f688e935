from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.http_server import settings
from suture.server.counters import TenantCounters
from suture.server.errors import ClientBusy, InvalidRequest
from suture.server.request import CompletionRequest
from suture.server.routes.limits import PLACES, ClientLimits, Places, places_for, places_of
from suture.server.tenants import Tenant

HERE = ("127.0.0.1", 50_000)
THERE = ("192.0.2.7", 50_000)


def limits(
    setting: object = "auto", n_keys: int = 0, parallel: int = 2, queue: int = 4
) -> ClientLimits:
    at = settings(client_limit=setting, parallel=parallel, queue=queue)
    return ClientLimits(at, n_keys)


def limit_of(
    setting: object, n_keys: int, caller: str | None, address: tuple[str, int]
) -> int | None:
    return limits(setting, n_keys).places(caller, address).limit


def test_half_of_all_is_of_all_that_other_servers_run() -> None:
    urls = ("http://one", "http://two")
    at = settings(engine="remote", engine_url=urls, engine_parallel=50, parallel=2, queue=20)
    assert ClientLimits(at, 2).places("key", HERE).limit == (2 * 50 + 20) // 2


@pytest.mark.parametrize(
    ("n_keys", "caller", "address", "limit"),
    [
        (0, None, HERE, None),
        (0, None, ("::1", 1), None),
        (0, None, ("::ffff:127.0.0.1", 1), None),
        (0, None, THERE, 3),
        (0, None, ("2001:db8::1", 1), 3),
        (1, "key", HERE, None),
        (1, "key", THERE, None),
        (2, "key", HERE, 3),
        (2, "key", THERE, 3),
    ],
)
def test_auto_is_half_of_all_for_who_can_be_told_apart(
    n_keys: int, caller: str | None, address: tuple[str, int], limit: int | None
) -> None:
    assert limits("auto", n_keys).places(caller, address).limit == limit


@pytest.mark.parametrize("caller", [None, "key"])
@pytest.mark.parametrize("address", [HERE, THERE])
def test_a_number_is_for_everybody_and_0_for_nobody(
    caller: str | None, address: tuple[str, int]
) -> None:
    assert limits(5, 1).places(caller, address).limit == 5
    assert limits(0, 1).places(caller, address).limit is None


def test_one_has_no_more_than_its_places_and_others_have_theirs() -> None:
    clients = limits(2)
    with ExitStack() as taken:
        for _ in range(2):
            taken.enter_context(clients.places(None, THERE).take())
        with pytest.raises(ClientBusy, match="may have 2 requests"):
            taken.enter_context(clients.places(None, THERE).take())
        taken.enter_context(clients.places(None, HERE).take())
        taken.enter_context(clients.places("key", THERE).take())
        assert clients.n_clients == 3
    assert clients.n_clients == 0
    with clients.places(None, THERE).take(2):
        pass


def test_places_are_given_back_where_the_work_fails() -> None:
    clients = limits(1)
    with pytest.raises(ZeroDivisionError), clients.places(None, HERE).take():
        raise ZeroDivisionError
    assert clients.n_clients == 0


def test_a_key_is_one_client_from_all_addresses_and_a_network_is_one() -> None:
    clients = limits(1)
    with clients.places("key", HERE).take(), clients.places(None, ("2001:db8::1", 1)).take():
        for caller, address in [("key", THERE), (None, ("2001:db8::2", 2))]:
            with pytest.raises(ClientBusy), clients.places(caller, address).take():
                pass
        with clients.places(None, ("2001:db8:0:1::1", 1)).take():
            pass


def test_candidates_take_a_place_each() -> None:
    places = limits(4).places(None, HERE)
    with places.take(3), pytest.raises(ClientBusy), places.take(2):
        pass
    with pytest.raises(InvalidRequest, match="at most 4") as raised, places.take(5):
        pass
    assert raised.value.field == "n"


def scope_of(clients: ClientLimits) -> dict[str, object]:
    return {"type": "http", PLACES: clients.places(None, HERE)}


def request(seq: int | None, session: str | None = "s", n: int = 1) -> CompletionRequest:
    return CompletionRequest(prefix="x", session=session, seq=seq, n=n)


def test_a_request_is_not_refused_for_the_one_that_it_supersedes() -> None:
    scope = scope_of(limits(1))
    with places_for(request(1), scope), places_for(request(2), scope):
        with pytest.raises(ClientBusy), places_for(request(1, "other"), scope):
            pass
    scope = scope_of(limits(3))
    with places_for(request(1, n=3), scope), places_for(request(2, n=2), scope):
        pass


def test_without_a_number_nothing_is_superseded() -> None:
    scope = scope_of(limits(1))
    with places_for(request(None), scope), pytest.raises(ClientBusy):
        with places_for(request(None), scope):
            pass


def test_nobody_counts_where_nobody_is_asked_to() -> None:
    assert places_of({"type": "http"}).limit is None


def test_the_users_of_a_tenant_have_its_places_together_and_each_its_own() -> None:
    clients, blue, red = limits(0), Tenant("blue", limit=3, user_limit=2), Tenant("red")
    with ExitStack() as taken:
        for user in ("ann", "ann", "bob"):
            taken.enter_context(clients.places("key", HERE, blue).take(user=user))
        with pytest.raises(ClientBusy, match="all users of one tenant together may have 3"):
            taken.enter_context(clients.places("other key", HERE, blue).take(user="eve"))
        for _ in range(9):
            taken.enter_context(clients.places("red key", HERE, red).take(user="ann"))
    with ExitStack() as taken:
        for _ in range(2):
            taken.enter_context(clients.places("key", HERE, blue).take(user="ann"))
        with pytest.raises(ClientBusy, match="one user may have 2"):
            # Whichever key of the tenant's it comes with.
            taken.enter_context(clients.places("other key", HERE, blue).take(user="ann"))
        taken.enter_context(clients.places("key", HERE, blue).take(user="bob"))
    assert clients.n_clients == 0


def test_a_tenants_limit_is_on_top_of_a_clients() -> None:
    clients, blue = limits("auto", n_keys=2), Tenant("blue", limit=5)
    with clients.places("key", HERE, blue).take(3):
        with pytest.raises(ClientBusy, match="one client may have 3"):
            with clients.places("key", HERE, blue).take():
                pass
        with clients.places("other key", HERE, blue).take(2):
            pass
        with pytest.raises(ClientBusy, match="one tenant together may have 5"):
            with clients.places("other key", HERE, blue).take(3):
                pass


def test_more_candidates_than_a_tenant_may_ever_have_are_no_429() -> None:
    blue = Tenant("blue", limit=3, user_limit=2)
    for n, who in ((3, "one user"), (4, "all users of one tenant together")):
        with pytest.raises(InvalidRequest, match=who) as raised:
            with limits(0).places("key", HERE, blue).take(n):
                pass
        assert raised.value.field == "n"


def test_who_has_no_name_is_a_user_by_its_key() -> None:
    clients, blue = limits(0), Tenant("blue", user_limit=1)
    with clients.places("key", HERE, blue).take():
        with pytest.raises(ClientBusy), clients.places("key", HERE, blue).take():
            pass
        with clients.places("other key", HERE, blue).take():
            pass


def test_a_session_takes_one_place_of_its_tenant_too() -> None:
    places = limits(0).places("key", HERE, Tenant("blue", limit=1, user_limit=1))
    scope = {"type": "http", PLACES: places}
    with places_for(request(1), scope), places_for(request(2), scope):
        with pytest.raises(ClientBusy), places_for(request(1, "other"), scope):
            pass


def test_requests_of_tenants_are_counted_and_others_are_not() -> None:
    counted = TenantCounters()
    clients = ClientLimits(settings(client_limit=0), 2, counted)
    places = clients.places("key", HERE, Tenant("blue", limit=1))
    with places.take(), clients.places(None, HERE).take(), pytest.raises(ClientBusy):
        with places.take():
            pass
    with pytest.raises(InvalidRequest), places.take(2):
        pass
    assert counted.requests == {("blue", "accepted"): 1, ("blue", "refused"): 2}


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([None, "s", "t"]), st.integers(1, 3)),
        max_size=12,
    )
)
def test_what_one_has_never_exceeds_its_limit(asked: list[tuple[str, str | None, int]]) -> None:
    """Against a count of all that is held, session by session."""
    clients = limits(4)
    held: list[tuple[str, str | None, int]] = []
    with ExitStack() as taken:
        for name, session, n in asked:
            places: Places = clients.places(name, HERE)
            try:
                taken.enter_context(places.take(n, session))
            except ClientBusy:
                continue
            held.append((name, session, n))
            mine = [(s, k) for who, s, k in held if who == name]
            loose = sum(k for s, k in mine if s is None)
            together = sum(max((k for s, k in mine if s == one), default=0) for one in ("s", "t"))
            assert loose + together <= 4
    assert clients.n_clients == 0
