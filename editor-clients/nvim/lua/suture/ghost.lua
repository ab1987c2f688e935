--- Draws a suggestion in the buffer as it would be once accepted, in nothing but extmarks.
---
--- What it takes the place of stays where it is, and its text is drawn around that: `def add(‸)`
--- shows `a, b` before the bracket and `:` behind it. Where that cannot be, the text covers it.

local closers = require('suture.closers')

local M = {}

local NAMESPACE = vim.api.nvim_create_namespace('suture')

--- The colour of what is suggested, unless the user or the colour scheme has one.
function M.define_colours()
  vim.api.nvim_set_hl(0, 'SutureGhost', { default = true, link = 'NonText' })
end

--- A text as it is shown from a display column on: a tab is the blanks it goes over.
local function expanded(text, column, tabstop)
  if not text:find('\t', 1, true) then
    return text
  end
  local shown = {}
  for before, tab in text:gmatch('([^\t]*)(\t?)') do
    table.insert(shown, before)
    column = column + vim.api.nvim_strwidth(before)
    if tab ~= '' then
      local n_blanks = tabstop - column % tabstop
      table.insert(shown, (' '):rep(n_blanks))
      column = column + n_blanks
    end
  end
  return table.concat(shown)
end

--- The parts of a text before, between and behind what it takes the place of; nil if it does not
--- write all of that itself.
local function around(replaced, text)
  if replaced == '' then
    return { { at = 0, text = text } }
  end
  local written = closers.written(replaced, text)
  if not written or #written.places == 0 then
    return nil
  end
  local parts, from = {}, 1
  for i, place in ipairs(written.places) do
    table.insert(parts, { at = written.closers[i] - 1, text = text:sub(from, place - 1) })
    from = place + 1
  end
  local shown = replaced:gsub('[ \t]', '')
  if #shown ~= #written.places or shown ~= replaced then
    return nil -- with blanks between them
  end
  table.insert(parts, { at = #replaced, text = text:sub(from) })
  return parts
end

local function chunk(text)
  return { { text, 'SutureGhost' } }
end

---@param bufnr integer
---@param row integer
---@param col integer
---@param text string
---@param place 'inline'|'overlay'
---@param below? string[]
local function mark(bufnr, row, col, text, place, below)
  local lines = below and #below > 0 and vim.tbl_map(chunk, below) or nil
  if text == '' and not lines then
    return
  end
  vim.api.nvim_buf_set_extmark(bufnr, NAMESPACE, row, col, {
    virt_text = text ~= '' and chunk(text) or nil,
    virt_text_pos = place,
    virt_lines = lines,
    hl_mode = 'combine',
    undo_restore = false,
    strict = false,
  })
end

--- Show what is left of a suggestion at a cursor, in the place of what is shown.
---@param bufnr integer
---@param row integer
---@param col integer
---@param rest suture.Rest
function M.draw(bufnr, row, col, rest)
  M.clear(bufnr)
  local line = vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ''
  local tail = line:sub(col + 1)
  local replaced, behind = tail:sub(1, rest.n_replaced), tail:sub(rest.n_replaced + 1)
  local lines = vim.split(rest.text, '\n', { plain = true })
  local column, tabstop = vim.fn.strdisplaywidth(line:sub(1, col)), vim.bo[bufnr].tabstop
  local below = {}
  for i = 2, #lines do
    below[i - 1] = expanded(lines[i], 0, tabstop)
  end
  local first = expanded(lines[1], column, tabstop)
  local parts = (#below == 0 or behind == '') and around(replaced, first)
  if parts then
    for i, part in ipairs(parts) do
      mark(bufnr, row, col + part.at, part.text, 'inline', i == #parts and below or nil)
    end
    return
  end
  -- Over the rest of the line, which ends the last one then.
  local shown = #below == 0 and first .. behind or first
  local n_bare = vim.fn.strdisplaywidth(tail, column) - vim.api.nvim_strwidth(shown)
  if #below > 0 then
    below[#below] = below[#below] .. expanded(behind, vim.api.nvim_strwidth(below[#below]), tabstop)
  end
  mark(bufnr, row, col, shown .. (' '):rep(n_bare), 'overlay', below)
end

--- Show nothing.
---@param bufnr integer
function M.clear(bufnr)
  if vim.api.nvim_buf_is_valid(bufnr) then
    vim.api.nvim_buf_clear_namespace(bufnr, NAMESPACE, 0, -1)
  end
end

--- Show what is drawn in one window alone, where Neovim can: a buffer may be in several.
---@param window integer
function M.keep_to(window)
  if vim.api.nvim__ns_set then
    pcall(vim.api.nvim__ns_set, NAMESPACE, { wins = { window } })
  end
end

return M
