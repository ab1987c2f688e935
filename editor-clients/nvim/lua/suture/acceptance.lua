--- Puts a suggestion into the text, and says so to the server that made it.

local position = require('suture.position')
local server = require('suture.server')
local suggestion = require('suture.suggestion')

local M = {}

--- Insert a text at the cursor, in the place of some bytes behind it; the cursor goes behind it.
local function insert(text, n_replaced)
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local lines = vim.split(text, '\n', { plain = true })
  local last = #lines == 1 and col + #text or #lines[#lines]
  vim.api.nvim_buf_set_text(0, row - 1, col, row - 1, col + n_replaced, lines)
  vim.api.nvim_win_set_cursor(0, { row + #lines - 1, last })
end

local function tell(client, rest, piece)
  local item = rest.of.item
  if piece ~= rest.text then
    local accepted = rest.of.text:sub(1, #rest.of.text - #rest.text + #piece)
    server.notify(client, 'suture/didPartiallyAccept', {
      item = item,
      acceptedLength = position.units(accepted, #accepted, 'utf-16'),
    })
  elseif type(item.command) == 'table' then
    server.execute(client, item.command)
  end
end

--- Accept what is left of a suggestion at the cursor, or a part of that; what is left then.
---@param rest suture.Rest
---@param part 'all'|'word'|'line'
---@param client vim.lsp.Client? whose suggestion it is
---@return suture.Suggestion? nil where all is accepted
function M.accept(rest, part, client)
  local line, col = vim.api.nvim_get_current_line(), vim.api.nvim_win_get_cursor(0)[2]
  local piece, n_replaced = suggestion.piece(rest, part, line:sub(col + 1))
  insert(piece, n_replaced)
  if client then
    tell(client, rest, piece)
  end
  if piece == rest.text then
    return nil
  end
  local row = vim.api.nvim_win_get_cursor(0)[1] - 1
  line, col = vim.api.nvim_get_current_line(), vim.api.nvim_win_get_cursor(0)[2]
  local item = vim.tbl_extend('force', rest.of.item, { insertText = rest.text:sub(#piece + 1) })
  return suggestion.new(row, line, col, col + rest.n_replaced - n_replaced, item)
end

return M
