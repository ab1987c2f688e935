--- Requests for suggestions: one at a time in a buffer, for all who want the answer.
---
--- F1  A request ends the one before it, which is cancelled at once. Whoever asks at the place of
---     the one that is in flight gets its answer: two front ends never end each other's.
--- F2  Whoever asked is answered once, with nil where the request was ended, unless they left. Who
---     leaves ends the request only where nobody else waits for it.

local position = require('suture.position')
local server = require('suture.server')
local suggestion = require('suture.suggestion')

local M = {}

local METHOD = 'textDocument/inlineCompletion'
local INVOKED, AUTOMATIC = 1, 2

---@class suture.Place where the cursor was, in which text
---@field bufnr integer
---@field tick integer
---@field row integer from 0
---@field col integer bytes
---@field line string
---@field selected table? the selected row of a popup

---@class suture.Flight
---@field client vim.lsp.Client
---@field id integer?
---@field place suture.Place
---@field waiting suture.Take[]

---@alias suture.Take fun(suggestions: suture.Suggestion[]?)

---@type table<integer, suture.Flight>
local flights = {}

--- Where the cursor of the current window is.
---@param selected table? the selected row of a popup
---@return suture.Place
function M.here(selected)
  local bufnr = vim.api.nvim_get_current_buf()
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  return {
    bufnr = bufnr,
    tick = vim.api.nvim_buf_get_changedtick(bufnr),
    row = row - 1,
    col = col,
    line = vim.api.nvim_get_current_line(),
    selected = selected,
  }
end

---@param one suture.Place?
---@param other suture.Place
function M.is_same(one, other)
  return one ~= nil
    and one.bufnr == other.bufnr
    and one.tick == other.tick
    and one.row == other.row
    and one.col == other.col
    and vim.deep_equal(one.selected, other.selected)
end

--- The row of a popup as the protocol has it, which would take the place of `first` to the cursor.
local function selected_info(place, encoding)
  local selected = place.selected
  if not selected then
    return nil
  end
  local function at(byte)
    return { line = place.row, character = position.units(place.line, byte, encoding) }
  end
  return {
    range = { start = at(selected.first), ['end'] = at(place.col) },
    text = selected.text,
  }
end

local function params_at(place, kind, encoding)
  local document = vim.lsp.util.make_text_document_params(place.bufnr)
  document.version = vim.lsp.util.buf_versions[place.bufnr]
  return {
    textDocument = document,
    position = {
      line = place.row,
      character = position.units(place.line, place.col, encoding),
    },
    context = { triggerKind = kind, selectedCompletionInfo = selected_info(place, encoding) },
  }
end

--- The suggestions of an answer. Their ranges are in the line that the cursor was in.
local function read(result, place, encoding)
  local items = type(result) == 'table' and (result.items or result) or {}
  local found = {}
  for _, item in ipairs(items) do
    local first, last = place.col, place.col
    if type(item.range) == 'table' then
      first = position.byte(place.line, item.range.start.character, encoding)
      last = position.byte(place.line, item.range['end'].character, encoding)
    end
    table.insert(found, suggestion.new(place.row, place.line, first, last, item))
  end
  return found
end

--- Those who wait for an answer at a place, and from now on for another one.
local function take_over(place)
  local flight = flights[place.bufnr]
  if not flight or not M.is_same(flight.place, place) then
    return {}
  end
  local waiting = flight.waiting
  flight.waiting = {}
  return waiting
end

--- Ask for suggestions at a place; `take` gets them, and nil if another request ends this one.
---@param place suture.Place
---@param is_by_hand boolean
---@param take suture.Take
---@return boolean whether there is a server to ask
function M.ask(place, is_by_hand, take)
  local flight = flights[place.bufnr]
  if flight and not is_by_hand and M.is_same(flight.place, place) then
    table.insert(flight.waiting, take)
    return true
  end
  local client = server.client(place.bufnr)
  if not client then
    M.cancel(place.bufnr)
    return false
  end
  local waiting = take_over(place)
  M.cancel(place.bufnr)
  table.insert(waiting, take)
  local encoding = client.offset_encoding
  local params = params_at(place, is_by_hand and INVOKED or AUTOMATIC, encoding)
  flight = { client = client, place = place, waiting = waiting }
  flights[place.bufnr] = flight
  flight.id = server.request(client, METHOD, params, function(_, result)
    if flights[place.bufnr] ~= flight then
      return
    end
    flights[place.bufnr] = nil
    local found = read(result, place, encoding)
    for _, each in ipairs(flight.waiting) do
      each(found)
    end
  end, place.bufnr)
  return true
end

--- Whether an answer is on its way to a place.
---@param place suture.Place
function M.is_asked(place)
  local flight = flights[place.bufnr]
  return flight ~= nil and M.is_same(flight.place, place)
end

--- End what is in flight in a buffer; all who wait for it are told.
---@param bufnr integer
function M.cancel(bufnr)
  local flight = flights[bufnr]
  flights[bufnr] = nil
  if not flight then
    return
  end
  if flight.id then
    server.cancel(flight.client, flight.id)
  end
  for _, take in ipairs(flight.waiting) do
    -- Not at once: who is told may ask, and somebody is about to.
    vim.schedule(take)
  end
end

--- One who asked does not want the answer any more.
---@param bufnr integer
---@param take suture.Take?
function M.leave(bufnr, take)
  local flight = flights[bufnr]
  if not flight or not vim.list_contains(flight.waiting, take) then
    return
  end
  flight.waiting = vim.tbl_filter(function(each)
    return each ~= take
  end, flight.waiting)
  if #flight.waiting == 0 then
    M.cancel(bufnr)
  end
end

return M
