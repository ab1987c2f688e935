--- The language server: one process for each root, started once, and again after it died.
---
--- C1  One that cannot be started is told of once, and not tried again before the user does
---     something. One that dies is started again after 1 s, 2, 4, … and no more after MAX_DEATHS in
---     a row, none of which has lived for LIVED_MS.

local options_of = require('suture.options')
local status = require('suture.status')

local M = {}

local NAME = 'suture'
local MAX_DEATHS = 5
local LIVED_MS = 60000
local ROOT_MARKERS = { '.git', '.hg', '.jj' }

---@type suture.Options
local options
local is_missing, has_told_of_death, n_deaths = false, false, 0
-- Until the next start after a death.
local is_waiting = false
-- Of each buffer its client, and what to do once it has one.
local clients, on_ready = {}, function(_) end
-- The ids of all that were started and have not ended, also of those that may not be asked yet.
local started = {}
-- Those that this plugin ends itself, by their ids.
local is_ended = {}

--- Whether Neovim's clients have methods: before 0.11 they are functions.
local HAS_METHODS = vim.fn.has('nvim-0.11') == 1

local function call(client, name, ...)
  if HAS_METHODS then
    return client[name](client, ...)
  end
  return client[name](...)
end

local function say(text, level)
  vim.notify('suture: ' .. text, level or vim.log.levels.WARN)
end

--- Whether anything of a buffer may go to the server: text that a user edits, and no secret one.
---@param bufnr integer
function M.wants(bufnr)
  if not vim.api.nvim_buf_is_loaded(bufnr) then
    return false
  end
  local bo = vim.bo[bufnr]
  -- Bytes that are no text have no place in a message.
  return bo.buftype == ''
    and not bo.binary
    and bo.modifiable
    and options_of.has_filetype(options, bo.filetype)
end

local function is_same_server(client, config)
  return client.name == NAME
    and not call(client, 'is_stopped')
    and (client.config.root_dir == config.root_dir or not config.root_dir)
end

--- What starts the process: the client believes that it ended well, for Neovim tells of all else
--- each time.
local function command(on_end)
  return function(dispatchers)
    local on_exit = dispatchers.on_exit
    dispatchers.on_exit = function(code, signal)
      on_end(code, signal)
      on_exit(0, 0)
    end
    return vim.lsp.rpc.start(options.cmd, dispatchers, {})
  end
end

local function died(code, signal)
  n_deaths = n_deaths + 1
  local why = signal ~= 0 and ('by signal %d'):format(signal) or ('with code %d'):format(code)
  if n_deaths > MAX_DEATHS then
    local text = ('`%s` ended %s again; `:Suture restart` starts it'):format(options.cmd[1], why)
    status.say({ kind = 'Error', busy = false, message = text, reason = 'STOPPED' })
    return say(text, vim.log.levels.ERROR)
  end
  status.say({ kind = 'Error', busy = true, message = 'it ended ' .. why, reason = 'STOPPED' })
  if not has_told_of_death then
    has_told_of_death = true
    say(('`%s` ended %s and is started again; `:Suture log`'):format(options.cmd[1], why))
  end
  is_waiting = true
  vim.defer_fn(function()
    is_waiting = false
    M.attach_all()
  end, 1000 * 2 ^ (n_deaths - 1))
end

--- What to do when a process ends, which may be in the middle of anything.
local function watch()
  local began, this = vim.uv.now(), {}
  function this.ended(code, signal)
    vim.schedule(function()
      for bufnr, client_id in pairs(clients) do
        clients[bufnr] = client_id ~= this.id and client_id or nil
      end
      started[this.id] = nil
      status.forget(this.id)
      if is_ended[this.id] or vim.v.exiting ~= vim.NIL then
        is_ended[this.id] = nil
        return
      end
      n_deaths = vim.uv.now() - began > LIVED_MS and 0 or n_deaths
      died(code, signal)
    end)
  end
  return this
end

local function config_for(bufnr, this)
  local capabilities = vim.tbl_deep_extend('force', vim.lsp.protocol.make_client_capabilities(), {
    general = { positionEncodings = { 'utf-8', 'utf-16', 'utf-32' } },
    textDocument = { inlineCompletion = { dynamicRegistration = false } },
  })
  local section = next(options.section) and options.section or vim.empty_dict()
  return {
    name = NAME,
    cmd = command(function(code, signal)
      this.ended(code, signal)
    end),
    root_dir = vim.fs.root(bufnr, ROOT_MARKERS),
    capabilities = capabilities,
    -- At the start it hears of what has no effect later. The rest it asks for, and may be told
    -- anew: what stands here would be below that for ever.
    init_options = { suture = { completion = options.section.completion or false } },
    settings = { suture = section },
    handlers = {
      ['suture/status'] = function(_, told, context)
        if not is_ended[context.client_id] then
          status.told(context.client_id, told)
        end
      end,
    },
    on_init = function(client)
      this.id = client.id
      -- Options may have changed since it was started.
      for attached in pairs(client.attached_buffers) do
        if not M.wants(attached) then
          vim.lsp.buf_detach_client(attached, client.id)
        end
      end
    end,
    on_attach = function(client, attached)
      clients[attached] = client.id
      on_ready(attached)
    end,
  }
end

local function tell_missing()
  is_missing = true
  local text = ('`%s` is not to be found; `:help suture-install`'):format(options.cmd[1])
  status.say({ kind = 'Error', busy = false, message = text, reason = 'MISSING' })
  -- No error: Neovim would name the event at which it was found out as what failed.
  say(text)
end

--- Buffers without a name have one URI, so that only one of them may be open at a time.
local function leave_other_unnamed(bufnr)
  if vim.api.nvim_buf_get_name(bufnr) ~= '' then
    return
  end
  for other in pairs(clients) do
    if other ~= bufnr and vim.api.nvim_buf_is_valid(other) then
      if vim.api.nvim_buf_get_name(other) == '' then
        M.detach(other)
      end
    end
  end
end

--- Let the server know a buffer, if it may; it is started where it does not run.
---@param bufnr integer
function M.attach(bufnr)
  local may_start = options and not (is_missing or is_waiting or n_deaths > MAX_DEATHS)
  if not may_start or not M.wants(bufnr) then
    return
  end
  if clients[bufnr] and vim.lsp.get_client_by_id(clients[bufnr]) then
    return
  end
  if vim.fn.executable(options.cmd[1]) == 0 then
    return tell_missing()
  end
  leave_other_unnamed(bufnr)
  local this = watch()
  local config = config_for(bufnr, this)
  local ok, id = pcall(vim.lsp.start, config, { bufnr = bufnr, reuse_client = is_same_server })
  if not ok or not id then
    return tell_missing()
  end
  -- Of one that runs already, somebody else watches the end.
  this.id = id
  started[id] = true
end

--- Let the server know all buffers that are shown.
function M.attach_all()
  for _, window in ipairs(vim.api.nvim_list_wins()) do
    M.attach(vim.api.nvim_win_get_buf(window))
  end
end

--- The server forgets a buffer.
---@param bufnr integer
function M.detach(bufnr)
  local client_id = clients[bufnr]
  clients[bufnr] = nil
  if client_id and vim.lsp.buf_is_attached(bufnr, client_id) then
    vim.lsp.buf_detach_client(bufnr, client_id)
  end
end

--- Whether the server may know a buffer has changed, perhaps.
---@param bufnr integer
function M.review(bufnr)
  if not M.wants(bufnr) then
    M.detach(bufnr)
  else
    M.attach(bufnr)
  end
end

--- The client of a buffer, once it may be asked.
---@param bufnr integer
---@return vim.lsp.Client?
function M.client(bufnr)
  local client = clients[bufnr] and vim.lsp.get_client_by_id(clients[bufnr])
  return client and client.initialized and not call(client, 'is_stopped') and client or nil
end

local function living()
  local found = {}
  for id in pairs(started) do
    table.insert(found, vim.lsp.get_client_by_id(id))
  end
  return found
end

--- All clients that may be asked.
---@return vim.lsp.Client[]
function M.clients()
  return vim.tbl_filter(function(client)
    return client.initialized and not call(client, 'is_stopped')
  end, living())
end

--- Ask; the id of the request, nil if the server is gone.
---@return integer?
function M.request(client, method, params, handler, bufnr)
  local is_sent, id = call(client, 'request', method, params, handler, bufnr)
  return is_sent and id or nil
end

---@param id integer
function M.cancel(client, id)
  if not call(client, 'is_stopped') then
    call(client, 'cancel_request', id)
  end
end

function M.notify(client, method, params)
  call(client, 'notify', method, params)
end

--- Run a command of the server; `handler` gets what it answers.
---@param handler? fun(answer: any)
function M.command(client, name, arguments, handler)
  local params = { command = 'suture.' .. name, arguments = arguments }
  M.request(client, 'workspace/executeCommand', params, function(err, answer)
    if handler then
      handler(not err and answer or nil)
    end
  end, 0)
end

--- Run the command of an item that was accepted.
---@param command lsp.Command
function M.execute(client, command)
  local params = { command = command.command, arguments = command.arguments }
  M.request(client, 'workspace/executeCommand', params, function() end, 0)
end

--- End all processes; they are not started again by themselves.
function M.stop()
  for _, client in ipairs(living()) do
    is_ended[client.id] = true
    call(client, 'stop')
  end
  clients = {}
end

--- Try again, whatever has failed: the user wants it.
function M.restart()
  is_missing, has_told_of_death, n_deaths = false, false, 0
  M.stop()
  status.say(nil)
  M.attach_all()
end

--- Put options in force, in processes that run, too.
---@param wanted suture.Options
---@param ready fun(bufnr: integer) called for each buffer that the server got to know
function M.configure(wanted, ready)
  local is_other = options ~= nil and not vim.deep_equal(options.cmd, wanted.cmd)
  options, on_ready = wanted, ready
  is_missing = false
  if is_other then
    return M.restart()
  end
  local section = next(options.section) and options.section or vim.empty_dict()
  for _, client in ipairs(living()) do
    -- One that is not ready yet sends its settings itself, once it is.
    client.settings = { suture = section }
    if client.initialized then
      M.notify(client, 'workspace/didChangeConfiguration', { settings = client.settings })
    end
  end
  for bufnr in pairs(clients) do
    if not M.wants(bufnr) then
      M.detach(bufnr)
    end
  end
  M.attach_all()
end

return M
