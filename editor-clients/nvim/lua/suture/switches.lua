--- What the user switched on and off by commands, in all servers alike.
---
--- W1  It holds for as long as Neovim runs: servers that start later, in another root or again, are
---     told.

local server = require('suture.server')

local M = {}

local MINUTE_MS = 60000

---@type boolean? nil as long as only options say
local everything
---@type table<string, boolean>
local languages = {}
local snoozed_until = 0

--- Switch until it is as wanted; nil is the other way round. A server has no other command for it.
local function switch(client, language, wanted, take, has_tried)
  server.command(client, 'toggle', language and { language } or {}, function(answer)
    if answer and wanted ~= nil and answer.enabled ~= wanted and not has_tried then
      return switch(client, language, wanted, take, true)
    end
    take(answer and answer.enabled)
  end)
end

local function remember(language, is_on)
  if language then
    languages[language] = is_on
  else
    -- It ends a snooze, as it does in the server.
    everything, snoozed_until = is_on, 0
  end
end

local function others(client)
  return vim.tbl_filter(function(other)
    return other.id ~= client.id
  end, server.clients())
end

local function nothing() end

--- Switch suggestions, all or in one language. What one client makes of it all others shall.
---@param client vim.lsp.Client
---@param language string?
---@param wanted boolean? nil is the other way round
---@param take fun(is_on: boolean?) gets what it is then, nil without an answer
function M.switch(client, language, wanted, take)
  switch(client, language, wanted, function(is_on)
    if is_on ~= nil then
      remember(language, is_on)
      for _, other in ipairs(others(client)) do
        switch(other, language, is_on, nothing)
      end
    end
    take(is_on)
  end)
end

--- Nothing for so many minutes; nil is as long as the server finds fit, 0 ends it.
---@param client vim.lsp.Client
---@param minutes number?
---@param take fun(minutes: number?) gets how many it is, nil without an answer
function M.snooze(client, minutes, take)
  server.command(client, 'snooze', minutes and { minutes } or {}, function(answer)
    if answer then
      snoozed_until = vim.uv.now() + answer.minutes * MINUTE_MS
      for _, other in ipairs(others(client)) do
        server.command(other, 'snooze', { answer.minutes })
      end
    end
    take(answer and answer.minutes)
  end)
end

--- Tell a client that is new.
---@param client vim.lsp.Client
function M.restore(client)
  local function snooze_on()
    local left_ms = snoozed_until - vim.uv.now()
    if left_ms > 0 then
      server.command(client, 'snooze', { left_ms / MINUTE_MS })
    end
  end
  for language, is_on in pairs(languages) do
    switch(client, language, is_on, nothing)
  end
  if everything == nil then
    snooze_on()
  else
    -- To switch everything would end the snooze.
    switch(client, nil, everything, snooze_on)
  end
end

return M
