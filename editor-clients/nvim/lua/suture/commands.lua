--- :Suture and what stands behind it.

local server = require('suture.server')
local status_of = require('suture.status')
local switches = require('suture.switches')

local M = {}

local PREFIX = 'suture: '

local function say(text, level)
  vim.notify(PREFIX .. text, level or vim.log.levels.INFO)
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

--- Whether Neovim knows a filetype: it has files for it, or a buffer is of it.
local function is_filetype(name)
  if vim.list_contains(vim.fn.getcompletion('', 'filetype'), name) then
    return true
  end
  return vim.iter(vim.api.nvim_list_bufs()):any(function(bufnr)
    return vim.bo[bufnr].filetype == name
  end)
end

local function switch(language, wanted)
  local client = client_here()
  if client then
    switches.switch(client, language, wanted, function(is_on)
      if is_on == nil then
        return say('it does not answer', vim.log.levels.WARN)
      end
      local text = ('%s are %s'):format(name_of(language), is_on and 'on' or 'off')
      if language and not is_filetype(language) then
        return say(text .. '; Neovim knows no such filetype', vim.log.levels.WARN)
      end
      say(text)
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
  -- NaN is no number from 0 on either, and infinity is none that could be sent.
  if minutes and not (given and given >= 0 and given < math.huge) then
    return say(('`%s` is no number of minutes'):format(minutes), vim.log.levels.ERROR)
  end
  local client = client_here()
  if client then
    switches.snooze(client, given, function(is_for)
      if is_for then
        say(is_for > 0 and ('quiet for %g min'):format(is_for) or 'no longer quiet')
      end
    end)
  end
end

--- As much of a text as there is room for without a prompt to press Enter.
local function one_line(text)
  local n_cells = math.max(1, vim.v.echospace - #PREFIX)
  if vim.fn.strdisplaywidth(text) <= n_cells then
    return text
  end
  return vim.fn.printf('%.' .. n_cells - 1 .. 'S', text) .. '…'
end

--- How it does, in one line.
local function status()
  local report = require('suture').report()
  if not report then
    return say('it does not know this buffer; `:checkhealth suture`')
  end
  local word, message = status_of.word(report) or 'ready', report.message:gsub('%s+', ' ')
  if message == '' or message == word then
    return say(one_line(word))
  end
  local text = ('%s (%s)'):format(word, message)
  local is_whole = one_line(text) == text
  say(is_whole and text or one_line(('%s; `:Suture why` (%s)'):format(word, message)))
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
-- What may stand behind a command.
local USAGE = {
  toggle = ' [language]',
  enable = ' [language]',
  disable = ' [language]',
  snooze = ' [minutes]',
}

---@param arguments string[]
function M.run(arguments)
  local name = arguments[1] or 'status'
  local command, usage = COMMANDS[name], USAGE[name] or ''
  if command and #arguments > (usage == '' and 1 or 2) then
    say(('usage: `:Suture %s%s`'):format(name, usage), vim.log.levels.ERROR)
  elseif command then
    command(arguments[2])
  else
    local names = vim.tbl_keys(COMMANDS)
    table.sort(names)
    local known = table.concat(names, ', ')
    say(('no command `%s`; there are %s'):format(name, known), vim.log.levels.ERROR)
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
