--- :Suture and what stands behind it.

local server = require('suture.server')
local switches = require('suture.switches')

local M = {}

local function say(text, level)
  vim.notify('suture: ' .. text, level or vim.log.levels.INFO)
end

--- The client of the current buffer, else any; tells where there is none.
local function client_here()
  local client = server.client(vim.api.nvim_get_current_buf()) or server.clients()[1]
  if not client then
    local report = require('suture').report()
    say(report and report.message or 'it knows no buffer; `:checkhealth suture`')
  end
  return client
end

local function name_of(language)
  return language and ('suggestions in ' .. language) or 'suggestions'
end

local function switch(language, wanted)
  local client = client_here()
  if client then
    switches.switch(client, language, wanted, function(is_on)
      if is_on == nil then
        return say('it does not answer', vim.log.levels.WARN)
      end
      say(('%s are %s'):format(name_of(language), is_on and 'on' or 'off'))
    end)
  end
end

local function explained(take)
  local client = client_here()
  if client then
    server.command(client, 'explainLast', {}, function(answer)
      if answer then
        take(answer)
      else
        say('it does not answer', vim.log.levels.WARN)
      end
    end)
  end
end

local function is_text(value)
  return type(value) == 'string' and value ~= ''
end

local function why()
  explained(function(answer)
    if type(answer.suggestion) == 'table' then
      say(('suggested in %d ms (%s)'):format(answer.took_ms, answer.source))
    else
      local reason = is_text(answer.reason) and answer.reason .. ': ' or ''
      say(reason .. (is_text(answer.message) and answer.message or 'nothing is known'))
    end
  end)
end

--- All that is known of the last request, in a window of its own.
local function explain()
  explained(function(answer)
    vim.cmd.new()
    vim.bo.buftype, vim.bo.bufhidden, vim.bo.swapfile = 'nofile', 'wipe', false
    vim.api.nvim_buf_set_lines(0, 0, -1, false, vim.split(vim.inspect(answer), '\n'))
    vim.bo.filetype, vim.bo.modified, vim.bo.modifiable = 'lua', false, false
  end)
end

local function snooze(minutes)
  local given = minutes and tonumber(minutes)
  if minutes and not given then
    return say(('`%s` is no number of minutes'):format(minutes), vim.log.levels.ERROR)
  end
  local client = client_here()
  if client then
    switches.snooze(client, given, function(is_for)
      if is_for then
        say(is_for > 0 and ('quiet for %d min'):format(is_for) or 'no longer quiet')
      end
    end)
  end
end

local function status()
  local report = require('suture').report()
  if not report then
    return say('it does not know this buffer; `:checkhealth suture`')
  end
  local text = require('suture').status()
  say(report.message ~= '' and text .. ' (' .. report.message .. ')' or text)
end

--- What the shared server has said, else what Neovim noted of the language server.
local function log()
  local cache = vim.env.SUTURE_CACHE or ((vim.env.XDG_CACHE_HOME or '~/.cache') .. '/suture')
  local newest, at = nil, 0
  for _, path in ipairs(vim.fn.glob(cache .. '/run/server-*.log', true, true)) do
    if vim.fn.getftime(path) > at then
      newest, at = path, vim.fn.getftime(path)
    end
  end
  local path_of = vim.lsp.log.get_filename or vim.lsp.get_log_path
  vim.cmd.split({ args = { vim.fn.fnameescape(newest or path_of()) } })
end

local COMMANDS = {
  toggle = function(language)
    switch(language)
  end,
  enable = function(language)
    switch(language, true)
  end,
  disable = function(language)
    switch(language, false)
  end,
  snooze = snooze,
  status = status,
  why = why,
  explain = explain,
  log = log,
  restart = server.restart,
  ['accept'] = function()
    require('suture').accept()
  end,
  ['accept-word'] = function()
    require('suture').accept_word()
  end,
  ['accept-line'] = function()
    require('suture').accept_line()
  end,
  dismiss = function()
    require('suture').dismiss()
  end,
  next = function()
    require('suture').next()
  end,
}

local LANGUAGES = { toggle = true, enable = true, disable = true }

---@param arguments string[]
function M.run(arguments)
  local command = COMMANDS[arguments[1] or 'status']
  if command then
    command(arguments[2])
  else
    local names = vim.tbl_keys(COMMANDS)
    table.sort(names)
    local known = table.concat(names, ', ')
    say(('no command `%s`; there are %s'):format(arguments[1], known), vim.log.levels.ERROR)
  end
end

--- What may stand at the end of a command line.
---@param line string
---@return string[]
function M.complete(line)
  local words = vim.split(line:gsub('^%s*%S+%s+', '', 1), '%s+')
  local names = vim.tbl_keys(COMMANDS)
  if #words == 2 and LANGUAGES[words[1]] then
    names = vim.fn.getcompletion(words[2], 'filetype')
  elseif #words > 1 then
    names = {}
  end
  table.sort(names)
  return vim.tbl_filter(function(name)
    return vim.startswith(name, words[#words])
  end, names)
end

return M
