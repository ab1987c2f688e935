--- How the language server does, and why nothing is suggested, as it says itself.

local M = {}

---@class suture.Status
---@field kind 'Normal'|'Warning'|'Error'|'Inactive'
---@field busy boolean
---@field message string
---@field reason string? a code of docs/reasons.md, or our own MISSING, STOPPED and STARTING

local WORDS = {
  AUTH = 'no key',
  BUSY = 'busy',
  DISABLED = 'off',
  DUPLICATE_SUFFIX = 'nothing to add',
  EMPTY = 'nothing to add',
  ERROR = 'error',
  EXCLUDED = 'excluded',
  LOADING = 'loading',
  LOW_CONFIDENCE = 'not sure',
  MIDWORD = 'mid-word',
  MISSING = 'not installed',
  NO_FIM = 'cannot fill in',
  STARTING = 'starting',
  STOPPED = 'stopped',
  UNREACHABLE = 'no server',
}

-- Reasons for which nothing was answered, wherever it was asked.
local GONE = { LOADING = true, UNREACHABLE = true }

local STARTING = {
  kind = 'Normal',
  busy = true,
  message = 'suture lsp starts',
  reason = 'STARTING',
}

-- The last one of each client, and what this plugin has to say itself, which goes before.
local of_clients, own = {}, nil

local function tell()
  vim.api.nvim_exec_autocmds('User', { pattern = 'SutureStatus', modeline = false })
  vim.cmd.redrawstatus({ bang = true })
end

--- A client told how it does; whether there is a server again that does answer.
---@param client_id integer
---@param status table
---@return boolean
function M.told(client_id, status)
  local before = of_clients[client_id]
  of_clients[client_id] = {
    kind = status.kind,
    busy = status.busy == true,
    message = status.message or '',
    reason = type(status.reason) == 'string' and status.reason or nil,
  }
  own = nil
  tell()
  local is_gone = GONE[status.reason] or status.kind == 'Error'
  return before ~= nil and GONE[before.reason] == true and not is_gone
end

--- What this plugin says for as long as no client does; nil takes it back.
---@param status suture.Status?
function M.say(status)
  own = status
  tell()
end

---@param client_id integer
function M.forget(client_id)
  of_clients[client_id] = nil
end

--- The status for a buffer whose client this is; without a client nothing is known but our own.
---@param client_id integer?
---@return suture.Status?
function M.of(client_id)
  if own or not client_id then
    return own
  end
  return of_clients[client_id] or STARTING
end

--- What holds it up, in a few words; nil where nothing does.
---@param status suture.Status
---@return string?
function M.word(status)
  local word = status.reason and (WORDS[status.reason] or status.reason:lower())
  if not word and status.kind ~= 'Normal' then
    word = status.message
  end
  return word
end

--- A few letters for a statusline.
---@param status suture.Status?
---@return string
function M.short(status)
  if not status then
    return ''
  end
  local word = M.word(status)
  return word and 'suture: ' .. word or 'suture'
end

return M
