--- A source for blink.cmp: `providers = { suture = { name = 'Suture', module = 'suture.blink',
--- async = true } }`, and `suture` among the default ones.

local entries = require('suture.entries')

local Source = {}
Source.__index = Source

function Source.new()
  return setmetatable({}, Source)
end

function Source:enabled()
  return entries.is_available()
end

function Source:get_trigger_characters()
  return { ' ', '.', ',', ':', ';', '(', '[', '{', '=', '"', "'", '<', '>', '/', '+', '-' }
end

--- The word before the cursor, by which blink.cmp filters.
local function keyword_of(context)
  local bounds = context.bounds or {}
  if not bounds.length or bounds.length == 0 then
    return ''
  end
  return context.line:sub(bounds.start_col, bounds.start_col + bounds.length - 1)
end

function Source:get_completions(context, callback)
  local trigger = context.trigger or {}
  local is_by_hand = trigger.initial_kind == 'manual'
  entries.ask(is_by_hand, keyword_of(context), function(found)
    callback({ items = found, is_incomplete_forward = true, is_incomplete_backward = true })
  end)
end

function Source:execute(_, entry, callback, default)
  default()
  entries.accepted(entry)
  callback()
end

return Source
