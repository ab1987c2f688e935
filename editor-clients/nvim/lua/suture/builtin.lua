--- A layer over `vim.lsp.inline_completion` (Neovim 0.12 and later): Neovim asks and draws; from
--- here come words and lines, keys with what they did before, undo, and events for the server.
---
--- Neovim asks 200 ms after a key, and forgets what it showed when any of it is accepted. What is
--- left then is drawn by us until it has asked again, and so is what was asked for by hand, which
--- it has no function for.

local acceptance = require('suture.acceptance')
local closers = require('suture.closers')
local flight = require('suture.flight')
local ghost = require('suture.ghost')
local keys = require('suture.keys')
local server = require('suture.server')
local suggestion = require('suture.suggestion')

local M = {}

local METHOD = 'textDocument/inlineCompletion'

---@type table<integer, true> the buffers in which Neovim asks because of us
local enabled = {}
-- What we draw ourselves, and in which buffer.
---@type { bufnr: integer, made: suture.Suggestion }?
local own
local group

local function line_at(row)
  return vim.api.nvim_buf_get_lines(0, row, row + 1, false)[1]
end

local function drop_own()
  if own then
    ghost.clear(own.bufnr)
    own = nil
  end
end

local function own_rest()
  if not own or own.bufnr ~= vim.api.nvim_get_current_buf() then
    return nil
  end
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  return suggestion.rest(own.made, row - 1, col, line_at)
end

local function draw_own()
  local rest = own_rest()
  if not rest then
    return drop_own()
  end
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  ghost.keep_to(vim.api.nvim_get_current_win())
  ghost.draw(own.bufnr, row - 1, col, rest)
end

local function show_own(made)
  drop_own()
  if made then
    own = { bufnr = vim.api.nvim_get_current_buf(), made = made }
    draw_own()
  end
end

--- Whether Neovim shows something in the current buffer. It does not tell but by what it draws.
local function is_drawn()
  local namespace = vim.api.nvim_get_namespaces()['nvim.lsp.inline_completion']
  return namespace ~= nil
    and #vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { limit = 1 }) > 0
end

---@return boolean
function M.is_visible()
  return own_rest() ~= nil or is_drawn()
end

--- The range of an item in bytes: row, first and last column. `vim.Range` has had two forms.
local function range_of(item)
  local range = item.range
  if not range then
    local row, col = unpack(vim.api.nvim_win_get_cursor(0))
    return row - 1, col, col
  elseif range.start_row then
    return range.start_row, range.start_col, range.end_col
  end
  return range.start.row, range.start.col, range.end_.col
end

--- What is left of an item at the cursor; nil where something else was typed since it came.
---@return suture.Rest?
local function rest_of(item)
  local row, first, last = range_of(item)
  local cursor = vim.api.nvim_win_get_cursor(0)
  local line, col = vim.api.nvim_get_current_line(), cursor[2]
  local raw = { insertText = item.insert_text, command = item.command }
  local made = suggestion.new(row, line, first, last, raw)
  local typed = line:sub(first + 1, col)
  if cursor[1] - 1 ~= row or col < first or made.text:sub(1, #typed) ~= typed then
    return nil
  end
  local text, n_replaced = made.text:sub(#typed + 1), last - col
  if typed ~= '' then
    -- The range is of the line before that was typed, or has grown: the text says what it closes.
    local written = closers.written(line:sub(col + 1, col + last - first), text)
    n_replaced = written and written.n_replaced or 0
  end
  return { text = text, n_replaced = math.max(0, n_replaced), of = made }
end

local function accept(rest, part, client)
  show_own(acceptance.accept(rest, part, client))
  -- Neovim accepts when it has time to: what is typed next is undone by itself.
  vim.api.nvim_feedkeys(vim.keycode('<C-g>u'), 'n', false)
end

--- Accept what is shown, or the next word or line of it.
---@param part 'all'|'word'|'line'
function M.accept(part)
  local rest = own_rest()
  if rest then
    return accept(rest, part, server.client(own.bufnr))
  end
  vim.lsp.inline_completion.get({
    on_accept = function(item)
      rest = rest_of(item)
      if rest then
        accept(rest, part, vim.lsp.get_client_by_id(item.client_id))
      end
    end,
  })
end

--- Hide what is shown; nothing comes here by itself before the text changes.
function M.dismiss()
  local bufnr = vim.api.nvim_get_current_buf()
  local client = server.client(bufnr)
  drop_own()
  -- Accepted by a function that does nothing, it is gone.
  vim.lsp.inline_completion.get({ on_accept = function() end })
  if client then
    local document = vim.lsp.util.make_text_document_params(bufnr)
    server.notify(client, 'suture/didReject', { textDocument = document })
  end
end

local function ask(is_by_hand)
  local place = flight.here()
  flight.ask(place, is_by_hand, function(found)
    if found and flight.is_same(flight.here(), place) and not is_drawn() then
      show_own(found[1])
    end
  end)
end

--- The next suggestion of several, else one that is asked for by hand.
function M.next()
  if is_drawn() then
    return vim.lsp.inline_completion.select({ count = 1 })
  end
  ask(true)
end

--- The server knows a buffer: from now on Neovim asks in it.
---@param bufnr integer
function M.attached(bufnr)
  vim.schedule(function()
    if not vim.api.nvim_buf_is_valid(bufnr) then
      return
    end
    enabled[bufnr] = true
    vim.lsp.inline_completion.enable(true, { bufnr = bufnr })
    local mode = vim.api.nvim_get_mode().mode
    if vim.api.nvim_get_current_buf() == bufnr and mode:sub(1, 1) == 'i' then
      -- Whoever types in it already has waited, and Neovim asks with the next key only.
      keys.take(bufnr)
      ask(false)
    end
  end)
end

--- The server answers again: what it did not answer is asked once more.
---@param bufnr integer
function M.resumed(bufnr)
  local inserts = vim.api.nvim_get_mode().mode:sub(1, 1) == 'i'
  if enabled[bufnr] and inserts and not M.is_visible() then
    ask(false)
  end
end

function M.start()
  group = vim.api.nvim_create_augroup('suture.builtin', {})
  local function on(events, callback, pattern)
    vim.api.nvim_create_autocmd(events, { group = group, callback = callback, pattern = pattern })
  end
  on('InsertEnter', function(event)
    if enabled[event.buf] then
      keys.take(event.buf)
    end
  end)
  local function left(event)
    keys.release()
    drop_own()
    flight.cancel(event.buf)
  end
  on({ 'InsertLeave', 'BufLeave' }, left)
  -- Ctrl-C leaves without InsertLeave.
  on('ModeChanged', left, 'i*:[^i]*')
  on({ 'CursorMovedI', 'TextChangedI' }, draw_own)
  -- It draws what it was answered; from then on that is what is shown.
  on('LspRequest', function(event)
    local request = event.data.request
    if request.method == METHOD and request.type == 'complete' and own then
      vim.schedule(function()
        if is_drawn() then
          drop_own()
        end
      end)
    end
  end)
end

function M.stop()
  keys.release()
  drop_own()
  for bufnr in pairs(enabled) do
    if vim.api.nvim_buf_is_valid(bufnr) then
      vim.lsp.inline_completion.enable(false, { bufnr = bufnr })
    end
  end
  enabled = {}
  if group then
    vim.api.nvim_del_augroup_by_id(group)
    group = nil
  end
end

return M
