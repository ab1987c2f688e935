"""Token healing: bytes and token ids, nothing else. No engine, no HTTP, no asyncio."""

from suture.healing.boundary import (
    Boundary,
    BoundaryError,
    Encode,
    fixed_boundary,
    stable_boundary,
    uncut_boundary,
)
from suture.healing.canonical import CanonicalPairs, is_canonical
from suture.healing.covers import ROOT, Cover, CoverTree, LeftOut, cover_tree
from suture.healing.detokenizer import Detokenizer, Snapshot
from suture.healing.gguf import GgufError, GgufHeader, read_header, read_metadata
from suture.healing.healer import Constraint, HealingError, TokenHealer, coverable
from suture.healing.hygiene import CleanEnd, NotSaidAgain, SaidAgain, structural_end, word_end
from suture.healing.posterior import Group, Posterior, log_softmax_row
from suture.healing.stops import OnStop
from suture.healing.tiktoken_encoding import (
    TiktokenTokenizer,
    first_difference,
    tokenizer_from_gguf,
    tokenizer_of,
)
from suture.healing.token_log import LoggedToken, TokenLog, display_name, display_text
from suture.healing.tokenizer_json import TokenizerFileError
from suture.healing.transducer import TokenTransducer
from suture.healing.vocabulary import TokenKind, UnsupportedVocabulary, Vocabulary
from suture.healing.windows import (
    Decode,
    DecodeBatch,
    Decoding,
    WindowDetokenizer,
    WindowSnapshot,
    decode_batch,
    feed_batch,
)

__all__ = [
    "ROOT",
    "Boundary",
    "BoundaryError",
    "CanonicalPairs",
    "CleanEnd",
    "Constraint",
    "Cover",
    "CoverTree",
    "Decode",
    "DecodeBatch",
    "Decoding",
    "Detokenizer",
    "Encode",
    "GgufError",
    "GgufHeader",
    "Group",
    "HealingError",
    "LeftOut",
    "LoggedToken",
    "NotSaidAgain",
    "OnStop",
    "Posterior",
    "SaidAgain",
    "Snapshot",
    "TiktokenTokenizer",
    "TokenHealer",
    "TokenKind",
    "TokenLog",
    "TokenTransducer",
    "TokenizerFileError",
    "UnsupportedVocabulary",
    "Vocabulary",
    "WindowDetokenizer",
    "WindowSnapshot",
    "cover_tree",
    "coverable",
    "decode_batch",
    "display_name",
    "display_text",
    "feed_batch",
    "first_difference",
    "fixed_boundary",
    "is_canonical",
    "log_softmax_row",
    "read_header",
    "read_metadata",
    "stable_boundary",
    "structural_end",
    "tokenizer_from_gguf",
    "tokenizer_of",
    "uncut_boundary",
    "word_end",
]
