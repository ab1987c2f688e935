// Why there is no text, or less than was asked for: docs/reasons.md in short.

export const REASONS = {
  LOADING: "The model is still being loaded.",
  BUSY: "Too many requests wait already.",
  BUDGET: "The prompt could not be read in time, or leaves no room.",
  DEADLINE: "The time that was asked for is over.",
  SUPERSEDED: "A newer request has come.",
  CANCELLED: "The request was cancelled.",
  LOW_CONFIDENCE: "The model was too unsure of what comes here.",
  DUPLICATE_SUFFIX: "All of the suggestion stands after the cursor already.",
  EMPTY: "The model ended at once.",
  MIDWORD: "The cursor is inside a word.",
  NO_FIM: "This model cannot fill in the middle: ask without the text after the cursor.",
  EXCLUDED: "This file is one of secrets.",
  DISABLED: "Suggestions are off.",
  UNREACHABLE: "The server cannot be reached.",
  AUTH: "The server wants an API key.",
  ERROR: "The engine failed on this request; the server's log says more.",
};
