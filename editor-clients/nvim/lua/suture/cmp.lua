--- A source for nvim-cmp: `require('suture.cmp').register()`, and `{ name = 'suture' }` among its
--- sources.

local entries = require('suture.entries')

local Source = {}
Source.__index = Source

local INVOKED = 1

function Source.new()
  return setmetatable({}, Source)
end

function Source.register()
  require('cmp').register_source('suture', Source.new())
end

function Source.get_debug_name()
  return 'suture'
end

function Source.is_available()
  return entries.is_available()
end

--- The ranges of entries are in bytes.
function Source.get_position_encoding_kind()
  return 'utf-8'
end

--- A suggestion needs no word.
function Source.get_trigger_characters()
  return { ' ', '\t', '.', ',', ':', ';', '(', '[', '{', '=', '"', "'", '<', '>', '/', '+', '-' }
end

function Source:complete(params, callback)
  local context = params.completion_context or {}
  local is_by_hand = context.triggerKind == INVOKED and params.context.option.reason == 'manual'
  -- It filters by the word before the cursor.
  local typed = params.context.cursor_before_line:sub(params.offset)
  entries.ask(is_by_hand, typed, function(found)
    callback({ items = found, isIncomplete = true })
  end)
end

function Source:execute(entry, callback)
  entries.accepted(entry)
  callback(entry)
end

return Source
