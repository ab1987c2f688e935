--- A suggestion, and what is left of it while one types. PURE.
---
--- It is a text in the place of a range in one line, as the language server sent it. Whoever types
--- what it says sees the rest at once, before the server says the same; also after Backspace and
--- after a part was accepted.
---
--- N1  The rest, accepted, makes the document that the suggestion made where it was, but for
---     closers that the editor added and it does not write. What is doubtful is no rest.

local closers = require('suture.closers')

local M = {}

---@class suture.Suggestion
---@field row integer where its range begins; from 0
---@field head string the line before the range
---@field replaced string what stands in the range
---@field behind string the line behind it
---@field text string what takes its place
---@field item table the item of the language server
---@field is_told? boolean whether the server knows that it was shown

---@class suture.Rest
---@field text string what would be inserted at the cursor
---@field n_replaced integer in the place of so many bytes behind it
---@field of suture.Suggestion

--- A suggestion for a line, of which the bytes from `first` up to `last` are its range.
---@param row integer
---@param line string
---@param first integer
---@param last integer
---@param item table
---@return suture.Suggestion
function M.new(row, line, first, last, item)
  local text = item.insertText
  text = type(text) == 'table' and text.value or text
  return {
    row = row,
    head = line:sub(1, first),
    replaced = line:sub(first + 1, last),
    behind = line:sub(last + 1),
    -- The buffer has no CR, whatever the file has.
    text = (text:gsub('\r\n?', '\n')),
    item = item,
  }
end

--- Whether two items are parts of the same suggestion, of which there may be more by now.
---@param one suture.Suggestion
---@param other suture.Suggestion
function M.is_same(one, other)
  local function number_of(made)
    local mark = vim.tbl_get(made.item, 'command', 'arguments', 1)
    return type(mark) == 'table' and mark.number or nil
  end
  local number = number_of(one)
  return number ~= nil and number == number_of(other)
end

--- What stands between the start of a suggestion and the cursor; nil if that is elsewhere.
local function typed_of(suggestion, row, col, line_at)
  if row < suggestion.row then
    return nil
  end
  local first = line_at(suggestion.row)
  if not first or first:sub(1, #suggestion.head) ~= suggestion.head then
    return nil
  end
  local from = #suggestion.head + 1
  if row == suggestion.row then
    return col >= #suggestion.head and first:sub(from, col) or nil
  end
  local _, n_line_ends = suggestion.text:gsub('\n', '')
  if row - suggestion.row > n_line_ends then
    return nil
  end
  local lines = { first:sub(from) }
  for at = suggestion.row + 1, row - 1 do
    table.insert(lines, line_at(at))
  end
  table.insert(lines, (line_at(row) or ''):sub(1, col))
  return table.concat(lines, '\n')
end

local function ends_with(text, ending)
  return ending == '' or text:sub(-#ending) == ending
end

--- How many bytes behind the cursor the rest takes the place of; nil if in doubt.
local function n_replaced_by(suggestion, typed, text, tail)
  local n_over = 0
  if not ends_with(tail, suggestion.replaced .. suggestion.behind) then
    local over = closers.written(suggestion.replaced, typed)
    if not over then
      return nil
    end
    n_over = over.n_replaced
  end
  local left = suggestion.replaced:sub(n_over + 1)
  if not ends_with(tail, left .. suggestion.behind) then
    return nil
  end
  local added = tail:sub(1, #tail - #left - #suggestion.behind)
  if added == '' then
    return #left
  end
  -- Blanks alone no editor adds.
  if not (added .. left):find('%S') or not closers.are_auto_closed(added, typed) then
    return nil
  end
  local over = closers.written(added .. left, text)
  -- What it replaced where it was made it still must.
  if not over or (left ~= '' and over.n_replaced < #added + #left) then
    return nil
  end
  return over.n_replaced
end

--- What is left of a suggestion at a cursor; nil if that is not on its way (N1).
---@param suggestion suture.Suggestion
---@param row integer
---@param col integer bytes before the cursor
---@param line_at fun(row: integer): string?
---@return suture.Rest?
function M.rest(suggestion, row, col, line_at)
  local typed = typed_of(suggestion, row, col, line_at)
  if not typed or suggestion.text:sub(1, #typed) ~= typed then
    return nil
  end
  local text, tail = suggestion.text:sub(#typed + 1), line_at(row):sub(col + 1)
  local n_replaced = n_replaced_by(suggestion, typed, text, tail)
  if not n_replaced or not text:find('%S') or text == tail:sub(1, n_replaced) then
    return nil
  end
  return { text = text, n_replaced = n_replaced, of = suggestion }
end

--- The next word of a text, with the blanks before it: a name, or signs.
---@param text string
---@return string
function M.word(text)
  return text:match('^%s*[%w_\128-\255]+') or text:match('^%s*[^%w_\128-\255%s]+') or text
end

--- The next line of a text, without its end; of one that begins with a line end, the one behind it.
---@param text string
---@return string
function M.line(text)
  return text:match('^\n*[^\n]+') or text
end

--- The part of a rest that a key accepts, and how many bytes behind the cursor it replaces.
---@param rest suture.Rest
---@param part 'all'|'word'|'line'
---@param tail string what stands behind the cursor in its line
---@return string, integer
function M.piece(rest, part, tail)
  local piece = part == 'all' and rest.text or M[part](rest.text)
  if piece == rest.text then
    return piece, rest.n_replaced
  end
  local over = closers.written(tail:sub(1, rest.n_replaced), piece)
  return piece, over and over.n_replaced or 0
end

return M
