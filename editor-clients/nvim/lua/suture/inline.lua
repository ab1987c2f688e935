--- Suggestions as one types, drawn by this plugin: asked for, shown, gone on with, accepted.
---
--- I1  With each key what is left of the suggestion is known at once, and drawn before the screen
---     is. The server is asked all the same: it knows better, and reads ahead.
--- I2  What is accepted is what is shown: computed anew from the text as it is then.
--- I3  Nothing is asked in a mode that is not Insert, while a macro is recorded or run, or with
---     'paste'.

local acceptance = require('suture.acceptance')
local flight = require('suture.flight')
local ghost = require('suture.ghost')
local keys = require('suture.keys')
local menu = require('suture.menu')
local server = require('suture.server')
local suggestion = require('suture.suggestion')

local M = {}

-- Those that one may come back to with Backspace.
local MAX_MADE = 8

---@class suture.Typing what is suggested in the buffer that one types in
---@field bufnr integer
---@field made suture.Suggestion[] the latest first
---@field answered suture.Suggestion[] those of the last answer, to choose from
---@field asked suture.Place? where was asked last
---@field take suture.Take? what waits for the answer to that
---@field shown suture.Rest?

---@type suture.Typing?
local typing
---@type suture.Options
local options
local group

local function line_at(row)
  return vim.api.nvim_buf_get_lines(0, row, row + 1, false)[1]
end

local function may_suggest()
  return vim.api.nvim_get_mode().mode:sub(1, 1) == 'i'
    and vim.fn.reg_recording() == ''
    and vim.fn.reg_executing() == ''
    and not vim.o.paste
    and vim.b.suture_enabled ~= false
    and (options.popup == 'beside' or not menu.is_open())
end

--- What is left of the latest suggestion that the cursor is on the way of.
---@return suture.Rest?
local function rest_here()
  if not typing or typing.bufnr ~= vim.api.nvim_get_current_buf() then
    return nil
  end
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  for _, made in ipairs(typing.made) do
    local rest = suggestion.rest(made, row - 1, col, line_at)
    if rest then
      return rest
    end
  end
end

local function tell_shown(rest)
  local client = not rest.of.is_told and server.client(typing.bufnr)
  if client then
    rest.of.is_told = true
    server.notify(client, 'suture/didShow', { item = rest.of.item })
  end
end

local function hide()
  if typing and typing.shown then
    typing.shown = nil
    ghost.clear(typing.bufnr)
    keys.release()
  end
end

local function show(rest)
  if not rest then
    return hide()
  end
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  typing.shown = rest
  ghost.keep_to(vim.api.nvim_get_current_win())
  ghost.draw(typing.bufnr, row - 1, col, rest)
  keys.take(typing.bufnr)
  tell_shown(rest)
end

local function forget()
  if typing then
    hide()
    flight.leave(typing.bufnr, typing.take)
    typing = nil
  end
end

--- Nobody types any more: what is in flight is of no use, to menus neither.
local function left(event)
  forget()
  flight.cancel(event.buf)
end

--- Whether a suggestion says nothing that is not shown already.
local function is_known(made)
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local said = suggestion.rest(made, row - 1, col, line_at)
  local shown = rest_here()
  return said ~= nil
    and shown ~= nil
    and said.text == shown.text
    and said.n_replaced == shown.n_replaced
end

--- Take what the server says of a place; the text may have changed since.
local function answered(place, found)
  if not typing or typing.bufnr ~= place.bufnr or not may_suggest() then
    return
  end
  typing.answered = found
  local first = found[1]
  if not first then
    typing.made = {}
  elseif not is_known(first) then
    for _, made in ipairs(typing.made) do
      -- It has grown since it was told of.
      first.is_told = first.is_told or (suggestion.is_same(made, first) and made.is_told)
    end
    table.insert(typing.made, 1, first)
    typing.made[MAX_MADE + 1] = nil
  end
  show(rest_here())
end

local function ask(place, is_by_hand)
  local function take(found)
    if found then
      answered(place, found)
    end
  end
  -- Not answered twice, where it is the same place by hand.
  flight.leave(typing.bufnr, typing.take)
  typing.asked, typing.take = place, take
  flight.ask(place, is_by_hand, take)
end

local function begin(bufnr)
  if not typing or typing.bufnr ~= bufnr then
    forget()
    typing = { bufnr = bufnr, made = {}, answered = {} }
  end
end

--- Something has changed: the text, the cursor or the popup.
local function changed()
  local bufnr = vim.api.nvim_get_current_buf()
  if not may_suggest() or not server.client(bufnr) then
    return forget()
  end
  begin(bufnr)
  show(rest_here())
  local place = flight.here(options.popup == 'beside' and menu.selected() or nil)
  if not flight.is_same(typing.asked, place) then
    ask(place, false)
  end
end

--- The server knows a buffer now: whoever types in it already has waited for that.
---@param bufnr integer
function M.attached(bufnr)
  vim.schedule(function()
    if vim.api.nvim_get_current_buf() == bufnr and may_suggest() then
      changed()
    end
  end)
end

--- The server answers again: what it did not answer is asked once more.
---@param bufnr integer
function M.resumed(bufnr)
  if typing and typing.bufnr == bufnr and not typing.shown then
    if not flight.is_asked(typing.asked or flight.here()) then
      typing.asked = nil
      changed()
    end
  end
end

--- There is more of what is shown in a buffer than was answered: it is asked for again, and shown
--- in its place.
---@param bufnr integer
function M.grown(bufnr)
  if not typing or typing.bufnr ~= bufnr or not typing.shown or not may_suggest() then
    return
  end
  local place = flight.here(options.popup == 'beside' and menu.selected() or nil)
  if not flight.is_asked(place) then
    ask(place, false)
  end
end

--- Whether there is something to accept at the cursor, as the text is now (I2).
---@return boolean
function M.is_visible()
  return typing ~= nil and typing.shown ~= nil and rest_here() ~= nil
end

--- Accept what is shown, or the next word or line of it.
---@param part 'all'|'word'|'line'
function M.accept(part)
  local rest = rest_here()
  if not rest then
    return
  end
  acceptance.accept(rest, part, server.client(typing.bufnr))
  -- What is left is shown in the same breath.
  changed()
end

--- Hide what is shown; nothing comes here by itself before the text changes.
function M.dismiss()
  local rest = typing and typing.shown
  local client = rest and server.client(typing.bufnr)
  if client then
    server.notify(client, 'suture/didReject', { item = rest.of.item })
    typing.made, typing.answered = {}, {}
    flight.leave(typing.bufnr, typing.take)
    hide()
  end
end

--- The next suggestion of several, else one that is asked for by hand.
function M.next()
  local bufnr = vim.api.nvim_get_current_buf()
  if not server.client(bufnr) or vim.api.nvim_get_mode().mode:sub(1, 1) ~= 'i' then
    return
  end
  begin(bufnr)
  if typing.shown and #typing.answered > 1 then
    table.insert(typing.answered, table.remove(typing.answered, 1))
    table.insert(typing.made, 1, typing.answered[1])
    return show(rest_here())
  end
  ask(flight.here(menu.selected()), true)
end

--- Suggest from now on, in all buffers that the server knows.
---@param wanted suture.Options
function M.start(wanted)
  options = wanted
  group = vim.api.nvim_create_augroup('suture.inline', {})
  vim.api.nvim_create_autocmd({ 'CursorMovedI', 'TextChangedI', 'TextChangedP' }, {
    group = group,
    callback = changed,
  })
  -- It comes before the mode does.
  vim.api.nvim_create_autocmd('InsertEnter', {
    group = group,
    callback = vim.schedule_wrap(changed),
  })
  vim.api.nvim_create_autocmd({ 'InsertLeave', 'BufLeave', 'WinLeave', 'RecordingEnter' }, {
    group = group,
    callback = left,
  })
  -- Ctrl-C leaves without InsertLeave; or text is selected, as a placeholder of a snippet is.
  vim.api.nvim_create_autocmd('ModeChanged', {
    group = group,
    pattern = 'i*:[^i]*',
    callback = left,
  })
  menu.watch(group, function()
    if typing or vim.api.nvim_get_mode().mode:sub(1, 1) == 'i' then
      changed()
    end
  end)
end

--- Suggest nothing any more.
function M.stop()
  forget()
  if group then
    vim.api.nvim_del_augroup_by_id(group)
    group = nil
  end
end

return M
