"""Why a completion is what it is: what stands at the cursor, what may be meant, what becomes of it.

  typed    the text's last tokens as the tokenizer makes them of the text alone
  kept     those of them that the prompt has; what comes after is pending
  method   a way to heal, tried on the same request: `exact` and `recursive` give back what the
           request wants given back, `drop_one` is the published rule, `off` heals nothing
  weak     what makes an answer worse than it could be, named with its cure (`diagnoses.py`)

Nothing here evaluates or tokenizes: what others found out is put together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from suture.healing import Posterior, Vocabulary, display_name
from suture.server.diagnoses import Diagnosis, Facts, diagnose
from suture.server.prompt.plan import PromptPlan
from suture.server.request import CompletionRequest, CompletionResult, HealingLevel

MethodName = Literal["exact", "recursive", "drop_one", "off"]

MAX_TOKENS = 64

_N_BEST = 12
_N_NEXT = 5
_BYTES_BEFORE = 48
_BYTES_AFTER = 24


@dataclass(frozen=True, slots=True)
class Token:
    """A token, its bytes, and what to call it: its text, or a control token's name."""

    token_id: int
    piece: bytes
    name: str


@dataclass(frozen=True, slots=True)
class CoverNode:
    """A node of the cover tree. `end` pending bytes are spelled there; `probability` is that of
    the tokens up to it, before what is pending is known. `parent` -1 is the cut."""

    token: Token
    parent: int
    end: int
    probability: float


@dataclass(frozen=True, slots=True)
class Next:
    """A token that may follow an exact end, by its share of what may follow there."""

    token: Token
    probability: float


@dataclass(frozen=True, slots=True)
class CoverShare:
    """A cover and its posterior probability; `following` are the best tokens at an exact end."""

    tokens: tuple[Token, ...]
    is_exact_end: bool
    overhang: bytes
    probability: float
    following: tuple[Next, ...] = ()


@dataclass(frozen=True, slots=True)
class Covers:
    """The tree and its best covers. `others` is the probability of those that are not among them.

    `tv_bound` is that of the answer of the method `exact`. `log_evidence` is how likely the model
    thinks it that the text goes on as it was typed.
    """

    nodes: tuple[CoverNode, ...]
    best: tuple[CoverShare, ...]
    others: float
    log_evidence: float
    tv_bound: float
    is_filtered: bool


@dataclass(frozen=True, slots=True)
class Boundary:
    """The bytes around the cursor, and the tokens before it as typed and as kept."""

    before: bytes
    after: bytes
    typed: tuple[Token, ...]
    kept: tuple[Token, ...]
    pending: bytes
    dropped_tokens: int


@dataclass(frozen=True, slots=True)
class Method:
    """What one method makes of the request; `is_asked` is the one that the request asks for."""

    name: MethodName
    is_asked: bool
    level: HealingLevel
    pending: bytes
    text: str
    result: CompletionResult


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the prompt; `n_reused` of its tokens were in the cache."""

    role: str
    n_tokens: int
    n_reused: int


@dataclass(frozen=True, slots=True)
class PromptMap:
    """The prompt of the method asked for, part by part.

    `n_excluded` chunks of other files were left out because they hold secrets.
    """

    layout: str
    boundary: str | None
    truncated: bool
    n_tokens: int
    n_reused: int
    segments: tuple[Segment, ...]
    n_excluded: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """All of it. `covers` are None where nothing is pending, or where nothing is healed exactly."""

    boundary: Boundary
    covers: Covers | None
    methods: tuple[Method, ...]
    prompt: PromptMap
    diagnoses: tuple[Diagnosis, ...]

    @property
    def asked(self) -> Method:
        """What the request itself is answered."""
        return next(method for method in self.methods if method.is_asked)


@dataclass(frozen=True, slots=True)
class Tried:
    """A method's plan, and the text and result of its generation."""

    plan: PromptPlan
    text: str
    result: CompletionResult


def asked_method(request: CompletionRequest) -> MethodName:
    """The method that a request asks for."""
    if request.healing == "recursive" and request.give_back == 1:
        return "drop_one"
    return request.healing


def trials(request: CompletionRequest) -> dict[MethodName, CompletionRequest]:
    """The request by each method, the one asked for first; greedy and single.

    As long as the request wants it, which its prompt depends on; `MAX_TOKENS` are for who runs it.
    """
    # Without a number nothing is superseded by it; `session` and `path` decide on windows still.
    greedy = replace(request.sampling, temperature=0.0, dynatemp_range=0.0)
    n_tokens = max(request.max_tokens, 1)
    base = replace(request, n=1, seq=None, sampling=greedy, max_tokens=n_tokens, detokenize=True)
    by_name: dict[MethodName, CompletionRequest] = {
        "exact": replace(base, healing="exact"),
        "recursive": replace(base, healing="recursive"),
        "drop_one": replace(base, healing="recursive", give_back=1),
        "off": replace(base, healing="off"),
    }
    asked = asked_method(request)
    return {asked: by_name[asked], **by_name}


def explain(
    request: CompletionRequest,
    tried: Mapping[MethodName, Tried],
    covers: Covers | None,
    typed_ids: Sequence[int],
    stable_pending: bytes | None,
    vocabulary: Vocabulary,
    heals: bool,
) -> Explanation:
    """The explanation of a request whose `trials` came out so.

    `typed_ids` are the tokens of the prompt's text before the cursor. `stable_pending` is what a
    stable cut gives back of it, None where no tokens could say that again. `heals` says whether
    the model's tokens can be healed at all.
    """
    asked = asked_method(request)
    exact, chosen = tried["exact"], tried[asked]
    if covers is not None and exact.result.healing.level != "none":
        covers = replace(covers, tv_bound=exact.result.healing.tv_bound)
    facts = Facts(
        request=request,
        plan=chosen.plan,
        level=chosen.result.healing.level,
        stable_pending=stable_pending,
        heals=heals,
        log_evidence=covers.log_evidence if covers else None,
        tv_bound=covers.tv_bound if covers else 0.0,
    )
    names: tuple[MethodName, ...] = ("off", "drop_one", "recursive", "exact")
    return Explanation(
        boundary=_boundary(request, exact.plan, typed_ids, vocabulary),
        covers=covers,
        methods=tuple(_method(name, name == asked, tried[name]) for name in names),
        prompt=_prompt_map(chosen.plan, chosen.result.prompt.reused),
        diagnoses=diagnose(facts),
    )


def explain_covers(posterior: Posterior, vocabulary: Vocabulary) -> Covers:
    """The covers of a posterior as plain data, the best with their probabilities.

    Asks which of the best are canonical, which changes no probability.
    """
    tree, tv_bound = posterior.tree, posterior.draw_bound
    best = posterior.ask_best(_N_BEST).tolist()
    log_evidence = posterior.log_evidence
    shares = [_share(posterior, index, log_evidence, vocabulary) for index in best]
    priors = (posterior.log_priors.get(node, -math.inf) for node in range(len(tree.tokens)))
    nodes = tuple(
        CoverNode(_token(token_id, vocabulary), parent, end, math.exp(prior))
        for token_id, parent, end, prior in zip(
            tree.tokens, tree.parents, tree.ends, priors, strict=True
        )
    )
    others = max(0.0, 1.0 - sum(share.probability for share in shares))
    return Covers(nodes, tuple(shares), others, log_evidence, tv_bound, tree.is_filtered)


def _share(
    posterior: Posterior, index: int, log_evidence: float, vocabulary: Vocabulary
) -> CoverShare:
    cover, log_weight = posterior.cover(index), float(posterior.log_weights[index])
    ids = posterior.tree.path(cover.node)
    following: tuple[Next, ...] = ()
    if cover.token_id is None:
        log_share = log_weight - posterior.log_priors[cover.node]
        following = _following(posterior, cover.node, log_share, vocabulary)
    else:
        ids = (*ids, cover.token_id)
    return CoverShare(
        tokens=tuple(_token(token_id, vocabulary) for token_id in ids),
        is_exact_end=cover.token_id is None,
        overhang=cover.overhang,
        probability=min(1.0, math.exp(log_weight - log_evidence)),
        following=following,
    )


def _following(
    posterior: Posterior, node: int, log_share: float, vocabulary: Vocabulary
) -> tuple[Next, ...]:
    best = (pair for pair in posterior.likeliest(node) if posterior.may_follow(node, pair[0]))
    return tuple(
        Next(_token(token_id, vocabulary), min(1.0, math.exp(log_prob - log_share)))
        for token_id, log_prob in islice(best, _N_NEXT)
    )


def _token(token_id: int, vocabulary: Vocabulary) -> Token:
    piece = vocabulary.bytes_of(token_id)
    return Token(token_id, piece, display_name(piece) if piece else vocabulary.text_of(token_id))


def _boundary(
    request: CompletionRequest, plan: PromptPlan, typed_ids: Sequence[int], vocabulary: Vocabulary
) -> Boundary:
    kept = tuple(_token(token_id, vocabulary) for token_id in plan.left_ids)
    # As many of the typed ones as say the same.
    n_left = sum(len(token.piece) for token in kept) + len(plan.pending)
    start = len(typed_ids)
    while start and n_left > 0:
        start -= 1
        n_left -= len(vocabulary.bytes_of(typed_ids[start]))
    return Boundary(
        before=_tail(request.prefix, _BYTES_BEFORE),
        after=_head(request.suffix, _BYTES_AFTER),
        typed=tuple(_token(token_id, vocabulary) for token_id in typed_ids[start:]),
        kept=kept,
        pending=plan.pending,
        dropped_tokens=plan.dropped_tokens,
    )


def _tail(text: str, n_bytes: int) -> bytes:
    """The text's last bytes, from a whole character on."""
    tail = text[-n_bytes:].encode()[-n_bytes:]
    return tail.decode("utf-8", "ignore").encode()


def _head(text: str, n_bytes: int) -> bytes:
    head = text[:n_bytes].encode()[:n_bytes]
    return head.decode("utf-8", "ignore").encode()


def _method(name: MethodName, is_asked: bool, tried: Tried) -> Method:
    level = tried.result.healing.level
    return Method(name, is_asked, level, tried.plan.pending, tried.text, tried.result)


def _prompt_map(plan: PromptPlan, n_reused: int) -> PromptMap:
    segments, n_left = [], n_reused
    for role, n_tokens in plan.segments:
        segments.append(Segment(role, n_tokens, min(n_tokens, n_left)))
        n_left -= segments[-1].n_reused
    return PromptMap(
        layout=plan.layout,
        boundary=plan.boundary,
        truncated=plan.truncated,
        n_tokens=len(plan.kept_ids),
        n_reused=n_reused,
        segments=tuple(segments),
        n_excluded=plan.n_excluded,
    )
