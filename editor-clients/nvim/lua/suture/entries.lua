--- Suggestions as entries of a completion menu, for nvim-cmp and blink.cmp.

local flight = require('suture.flight')
local server = require('suture.server')

local M = {}

local SNIPPET, AS_IS = 15, 1

--- Whether there is a server to ask for the current buffer.
function M.is_available()
  return server.client(vim.api.nvim_get_current_buf()) ~= nil
end

local function label_of(text)
  return vim.trim(vim.split(vim.trim(text), '\n', { plain = true })[1])
end

--- An entry, its range in bytes. Menus filter by the word before the cursor and what is typed then.
local function entry_of(made, place, typed)
  local first, last = #made.head, #made.head + #made.replaced
  local filetype = vim.bo[place.bufnr].filetype
  return {
    label = label_of(made.text),
    kind = SNIPPET,
    detail = 'Suture',
    documentation = {
      kind = 'markdown',
      value = ('```%s\n%s\n```'):format(filetype, made.text),
    },
    filterText = typed .. made.text,
    sortText = '\u{10ffff}', -- behind what a language server knows
    insertTextMode = AS_IS,
    textEdit = {
      newText = made.text,
      range = {
        start = { line = made.row, character = first },
        ['end'] = { line = made.row, character = last },
      },
    },
    command = made.item.command,
  }
end

--- Ask for entries at the cursor. `typed` is what the menu filters by that stands there already.
---@param is_by_hand boolean
---@param typed string
---@param take fun(entries: table[])
function M.ask(is_by_hand, typed, take)
  local place = flight.here()
  local is_asked = flight.ask(place, is_by_hand, function(found)
    take(vim.tbl_map(function(made)
      return entry_of(made, place, typed)
    end, found or {}))
  end)
  if not is_asked then
    take({})
  end
end

--- An entry was accepted.
---@param entry table
function M.accepted(entry)
  local client = server.client(vim.api.nvim_get_current_buf())
  if client and type(entry.command) == 'table' then
    server.execute(client, entry.command)
  end
end

return M
