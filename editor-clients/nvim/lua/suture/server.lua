--- The language server: one process for each root, started once, and again after it died.
---
--- C1  One that cannot be started is told of once, and not tried again before the user does
---     something. One that dies is started again after 1 s, 2, 4, … and no more after MAX_DEATHS in
---     a row in its root, none of which has lived for LIVED_MS.
--- C2  One that somebody stopped, by whatever command, has not died, and is not started again
---     before the user does something.

local options_of = require('suture.options')
local status = require('suture.status')

local M = {}

local NAME = 'suture'
local MAX_DEATHS = 5
local LIVED_MS = 60000
local ROOT_MARKERS = { '.git', '.hg', '.jj' }

---@type suture.Options
local options
local is_missing, has_told_of_death = false, false

---@class suture.Root
---@field n_deaths integer in a row
---@field is_held boolean nothing is started: it died a moment ago or too often, or was stopped

-- Of each root, by its path, how its processes did. Those that have none share one.
---@type table<string, suture.Root>
local roots = {}
-- Of each buffer its client.
local clients = {}

---@class suture.Told what to do when something happens
---@field ready fun(bufnr: integer) the server got to know a buffer
---@field resumed fun(bufnr: integer) the buffer's server answers again, after it did not
---@field begun fun(client: vim.lsp.Client) a client may be asked for the first time
---@field grown? fun(bufnr: integer) there is more of what is suggested in a buffer

---@type suture.Told
local on

---@class suture.Process
---@field root suture.Root
---@field began integer
---@field id integer? of its client
---@field is_stopping boolean somebody wants it to end
---@field failure string? why it could not be started

-- All that were started and have not ended, by the ids of their clients, also those that may not be
-- asked yet. Those that this plugin ends are none of them any more.
---@type table<integer, suture.Process>
local started = {}

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

local function root_of(path)
  local key = path or ''
  roots[key] = roots[key] or { n_deaths = 0, is_held = false }
  return roots[key]
end

--- Whether a process is there that nobody has stopped: before 0.11 Neovim tells only that it ended.
local function is_running(client)
  local process = started[client.id]
  return process ~= nil and not process.is_stopping and not call(client, 'is_stopped')
end

--- Also one that has ended a moment ago, of which we have not heard: it is not started twice.
local function is_same_server(client, config)
  local process = started[client.id]
  return process ~= nil
    and not process.is_stopping
    and (client.config.root_dir == config.root_dir or not config.root_dir)
end

--- Note who wants a process to end, which not all versions of Neovim tell.
local function watch_stop(rpc, process)
  local request, terminate = rpc.request, rpc.terminate
  local function stops()
    process.is_stopping, process.root.is_held = true, true
  end
  rpc.request = function(method, ...)
    if method == 'shutdown' then
      stops()
    end
    return request(method, ...)
  end
  rpc.terminate = function()
    stops()
    return terminate()
  end
  return rpc
end

--- What starts the process: the client believes that it ended well, for Neovim tells of all else
--- each time.
local function command(process, on_end)
  return function(dispatchers)
    local on_exit = dispatchers.on_exit
    dispatchers.on_exit = function(code, signal)
      on_end(code, signal)
      on_exit(0, 0)
    end
    local ok, rpc = pcall(vim.lsp.rpc.start, options.cmd, dispatchers, {})
    if not ok then
      process.failure = rpc
      error(rpc, 0)
    end
    return watch_stop(rpc, process)
  end
end

local function stopped()
  local text = 'it was stopped; `:Suture restart` starts it'
  status.say({ kind = 'Inactive', busy = false, message = text, reason = 'STOPPED' })
end

local function died(root, code, signal)
  root.n_deaths, root.is_held = root.n_deaths + 1, true
  local why = signal ~= 0 and ('by signal %d'):format(signal) or ('with code %d'):format(code)
  if root.n_deaths > MAX_DEATHS then
    local text = ('`%s` ended %s again; `:Suture restart` starts it'):format(options.cmd[1], why)
    status.say({ kind = 'Error', busy = false, message = text, reason = 'STOPPED' })
    return say(text, vim.log.levels.ERROR)
  end
  status.say({ kind = 'Error', busy = true, message = 'it ended ' .. why, reason = 'STOPPED' })
  if not has_told_of_death then
    has_told_of_death = true
    say(('`%s` ended %s and is started again; `:Suture log`'):format(options.cmd[1], why))
  end
  vim.defer_fn(function()
    -- Behind `restart` it is a root that nobody knows any more.
    root.is_held = false
    M.attach_all()
  end, 1000 * 2 ^ (root.n_deaths - 1))
end

--- What to do when a process ends, which may be in the middle of anything.
local function ended(process, code, signal)
  vim.schedule(function()
    for bufnr, client_id in pairs(clients) do
      clients[bufnr] = client_id ~= process.id and client_id or nil
    end
    status.forget(process.id)
    local is_ours = started[process.id] == nil
    started[process.id] = nil
    if is_ours or vim.v.exiting ~= vim.NIL then
      return
    elseif process.is_stopping then
      return stopped()
    end
    local has_lived = vim.uv.now() - process.began > LIVED_MS
    process.root.n_deaths = has_lived and 0 or process.root.n_deaths
    died(process.root, code, signal)
  end)
end

--- Whoever types waits for what was not answered.
local function resumed(client_id)
  local bufnr = vim.api.nvim_get_current_buf()
  if clients[bufnr] == client_id then
    on.resumed(bufnr)
  end
end

--- There is more of what was suggested in a document, to who types in it.
local function grown(client_id, uri)
  local bufnr = vim.api.nvim_get_current_buf()
  if on.grown and clients[bufnr] == client_id and vim.uri_from_bufnr(bufnr) == uri then
    on.grown(bufnr)
  end
end

local function config_for(process, root_dir)
  local capabilities = vim.tbl_deep_extend('force', vim.lsp.protocol.make_client_capabilities(), {
    general = { positionEncodings = { 'utf-8', 'utf-16', 'utf-32' } },
    textDocument = { inlineCompletion = { dynamicRegistration = false } },
  })
  local section = next(options.section) and options.section or vim.empty_dict()
  return {
    name = NAME,
    cmd = command(process, function(code, signal)
      ended(process, code, signal)
    end),
    root_dir = root_dir,
    capabilities = capabilities,
    -- At the start it hears of what has no effect later. The rest it asks for, and may be told
    -- anew: what stands here would be below that for ever.
    init_options = {
      suture = { completion = options.section.completion or false },
      knows = on.grown and { 'suture/didGrow' } or nil,
    },
    settings = { suture = section },
    handlers = {
      ['suture/status'] = function(_, told, context)
        if started[context.client_id] and status.told(context.client_id, told) then
          resumed(context.client_id)
        end
      end,
      ['suture/didGrow'] = function(_, told, context)
        grown(context.client_id, told.textDocument.uri)
      end,
    },
    on_init = function(client)
      -- Options may have changed since it was started.
      for attached in pairs(client.attached_buffers) do
        if not M.wants(attached) then
          vim.lsp.buf_detach_client(attached, client.id)
        end
      end
      on.begun(client)
    end,
    on_attach = function(client, attached)
      clients[attached] = client.id
      on.ready(attached)
    end,
  }
end

local function tell_missing(text, reason)
  is_missing = true
  status.say({ kind = 'Error', busy = false, message = text, reason = reason })
  -- No error: Neovim would name the event at which it was found out as what failed.
  say(text)
end

local function tell_failed(failure)
  local why = failure:match('with error message: (.*)') or failure
  -- That is what it says of a script whose interpreter is gone.
  if why:find('not installed', 1, true) then
    why = 'what its first line names is not there'
  end
  tell_missing(('`%s` could not be started: %s'):format(options.cmd[1], why), 'STOPPED')
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

--- Start a process for a buffer, or let one know it that runs already.
local function start(bufnr, root_dir)
  local process = { root = root_of(root_dir), began = vim.uv.now(), is_stopping = false }
  local ok, id = pcall(vim.lsp.start, config_for(process, root_dir), {
    bufnr = bufnr,
    reuse_client = is_same_server,
    silent = true,
  })
  if not ok or not id then
    return tell_failed(process.failure or tostring(id))
  end
  process.id = id
  -- Of one that runs already, somebody else watches the end.
  started[id] = started[id] or process
end

--- Let the server know a buffer, if it may; it is started where it does not run.
---@param bufnr integer
function M.attach(bufnr)
  if not options or is_missing or not M.wants(bufnr) then
    return
  end
  if clients[bufnr] and vim.lsp.get_client_by_id(clients[bufnr]) then
    return
  end
  local root_dir = vim.fs.root(bufnr, ROOT_MARKERS)
  if root_of(root_dir).is_held then
    return
  end
  if vim.fn.executable(options.cmd[1]) == 0 then
    local text = ('`%s` is not to be found; `:help suture-install`'):format(options.cmd[1])
    return tell_missing(text, 'MISSING')
  end
  leave_other_unnamed(bufnr)
  start(bufnr, root_dir)
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
  return client and client.initialized and is_running(client) and client or nil
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
    return client.initialized and is_running(client)
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
  if is_running(client) then
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
    call(client, 'stop')
  end
  clients, started = {}, {}
end

--- Try again, whatever has failed: the user wants it.
function M.restart()
  is_missing, has_told_of_death, roots = false, false, {}
  M.stop()
  status.say(nil)
  M.attach_all()
end

--- Put options in force, in processes that run, too.
---@param wanted suture.Options
---@param told suture.Told
function M.configure(wanted, told)
  local is_other = options ~= nil and not vim.deep_equal(options.cmd, wanted.cmd)
  options, on = wanted, told
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
