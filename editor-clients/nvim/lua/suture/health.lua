--- `:checkhealth suture`: whether all is here that suggestions need, and what to do if not.

local server = require('suture.server')

local M = {}

-- On a busy machine: a program that is not in the cache yet takes seconds.
local ANSWER_MS = 20000
-- Plugins that suggest inline, by a module of theirs.
local OTHERS = {
  ['copilot.lua'] = 'copilot',
  ['minuet-ai.nvim'] = 'minuet',
  ['codeium.nvim'] = 'codeium',
  ['supermaven-nvim'] = 'supermaven-nvim',
  ['tabnine-nvim'] = 'tabnine',
  ['llm.nvim'] = 'llm',
}
local OTHER_VARIABLES = {
  ['copilot.vim'] = 'loaded_copilot',
  ['llama.vim'] = 'loaded_llama',
  ['vim-tabby'] = 'loaded_tabby',
}

-- What to do about a status, by its reason, else by its kind.
local ADVICE = {
  AUTH = 'set `server.apiKeyFile`, see `:help suture-options`',
  BUSY = 'wait, or type on: it is asked again',
  DISABLED = '`:Suture enable`, or `:Suture snooze 0`; `:help suture-commands`',
  EXCLUDED = 'see `exclude` in `:help suture-options`',
  NO_FIM = 'serve a model that was trained to fill in: `suture models` lists some',
  Error = '`:Suture log`, `:Suture restart`',
  Inactive = 'see `:help suture-nothing`',
  Warning = 'see `:help suture-options`',
}

local function check_neovim()
  local version = tostring(vim.version())
  if vim.fn.has('nvim-0.10') == 0 then
    return vim.health.error('Neovim ' .. version, 'Neovim 0.10 or newer is needed')
  end
  local front = require('suture').front() == require('suture.inline') and 'this plugin'
    or 'vim.lsp.inline_completion'
  vim.health.ok(('Neovim %s; %s draws'):format(version, front))
end

local function check_options(options, problems)
  for _, problem in ipairs(problems) do
    vim.health.error(problem, 'see `:help suture-options`')
  end
  if #problems == 0 then
    local given = next(options.section) and vim.inspect(options.section) or 'all by default'
    vim.health.ok('options: ' .. given)
  end
end

--- What a command prints at once; nil if it fails.
local function output_of(command)
  local ok, done = pcall(function()
    return vim.system(command, { text = true, timeout = ANSWER_MS }):wait()
  end)
  return ok and done.code == 0 and vim.trim(done.stdout or '') or nil
end

local function check_executable(options)
  local command = options.cmd[1]
  if vim.fn.executable(command) == 0 then
    vim.health.error(('`%s` is not to be found'):format(command), {
      'install Suture, see `:help suture-install`',
      'or say where it is: `cmd = { "/path/to/suture", "lsp" }`',
    })
    return
  end
  -- Whatever stands before the verb says which program it is.
  local asked = {}
  for _, word in ipairs(options.cmd) do
    if word == 'lsp' then
      break
    end
    table.insert(asked, word)
  end
  local version = output_of(vim.list_extend(asked, { '--version' }))
  local path = vim.fn.exepath(command)
  if version then
    vim.health.ok(('%s (%s)'):format(version, path))
  else
    vim.health.warn(('`%s --version` says nothing (%s)'):format(command, path))
  end
end

--- What a server command answers, waiting for it; nil if it does not.
local function answer_of(client, name)
  local answer, is_there
  server.command(client, name, {}, function(result)
    answer, is_there = result, true
  end)
  vim.wait(ANSWER_MS, function()
    return is_there
  end, 10)
  return answer
end

--- The answer to GET over plain HTTP; nil if none comes. No other program is needed for it.
local function http_get(url, path)
  local host, port = url:match('^http://([^:/]+):?(%d*)')
  local socket, answer, is_over = vim.uv.new_tcp(), '', false
  if not host or not socket then
    return nil
  end
  local function finish()
    is_over = true
  end
  host = host == 'localhost' and '127.0.0.1' or host
  local ok = pcall(socket.connect, socket, host, tonumber(port) or 80, function(failed)
    if failed then
      return finish()
    end
    socket:write(('GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n'):format(path, host))
    socket:read_start(function(_, data)
      if not data then
        return finish()
      end
      answer = answer .. data
    end)
  end)
  vim.wait(ok and ANSWER_MS or 0, function()
    return is_over
  end, 10)
  socket:close()
  return answer:match('^HTTP/1%.%d 200') and answer:match('\r\n\r\n(.*)') or nil
end

local function models_at(url)
  local body = http_get(url, '/v1/models')
  local ok, listed = pcall(vim.json.decode, body or '')
  if not ok or type(listed) ~= 'table' or type(listed.data) ~= 'table' then
    return nil
  end
  return table.concat(
    vim.tbl_map(function(model)
      return model.id
    end, listed.data),
    ', '
  )
end

local function check_server(told)
  if type(told.server) ~= 'string' then
    return vim.health.warn('no server is known yet', 'type something, or run `suture serve`')
  end
  local models = models_at(told.server)
  if models then
    vim.health.ok(('the server at %s answers; model: %s'):format(told.server, models))
  else
    -- It may want a key, or TLS: then the status says how it does.
    vim.health.info('the server is at ' .. told.server)
  end
end

local function check_status(told)
  local reason = type(told.reason) == 'string' and told.reason or ''
  local text = vim.trim(('status: %s %s %s'):format(told.kind, reason, told.message or ''))
  text = text:gsub('%s+', ' ')
  local advice = ADVICE[reason] or ADVICE[told.kind]
  if told.kind == 'Error' then
    vim.health.error(text, advice)
  elseif told.kind == 'Normal' then
    vim.health.ok(text)
  else
    vim.health.warn(text, advice)
  end
end

local function check_client()
  local clients = server.clients()
  if #clients == 0 then
    local report = require('suture').report()
    return vim.health.warn(
      'the language server does not run' .. (report and ': ' .. report.message or ''),
      'open a file that a suggestion may come in, or `:Suture restart`'
    )
  end
  for _, client in ipairs(clients) do
    local root, n_buffers = client.config.root_dir, vim.tbl_count(client.attached_buffers)
    local where = root and 'for ' .. root or 'for files without a root'
    vim.health.ok(('the language server runs %s, with %d buffers'):format(where, n_buffers))
    local told = answer_of(client, 'status')
    if type(told) ~= 'table' then
      vim.health.error('it does not answer', '`:Suture restart`')
    else
      check_status(told)
      check_server(told)
    end
  end
end

local function others()
  local found = {}
  for name, module in pairs(OTHERS) do
    if package.loaded[module] then
      table.insert(found, name)
    end
  end
  for name, variable in pairs(OTHER_VARIABLES) do
    if vim.g[variable] then
      table.insert(found, name)
    end
  end
  table.sort(found)
  return found
end

local function check_conflicts(options)
  local found = others()
  if #found > 0 then
    local text = 'other plugins suggest inline, too: ' .. table.concat(found, ', ')
    vim.health.warn(text, 'two suggestions at one cursor are drawn into each other')
  else
    vim.health.ok('no other plugin that suggests inline is loaded')
  end
  for name, key in pairs(options.keys) do
    local mapping = key and vim.fn.maparg(key, 'i', false, true) or {}
    local is_ours = vim.startswith(mapping.desc or '', 'Suture: ')
    if not vim.tbl_isempty(mapping) and not is_ours then
      local what = mapping.desc or mapping.rhs or 'Lua'
      local text = ('%s (`keys.%s`) is mapped: %s'):format(key, name, what)
      if name == 'next' then
        vim.health.warn(text .. '; so it stays', 'set another key, or map <Plug>(suture-next)')
      else
        vim.health.info(text .. '; it does that wherever no suggestion is shown')
      end
    end
  end
end

function M.check()
  local suture = require('suture')
  suture.begin()
  local options, problems = suture.options()
  vim.health.start('Suture: editor')
  check_neovim()
  check_options(options, problems)
  check_conflicts(options)
  vim.health.start('Suture: server')
  check_executable(options)
  check_client()
end

return M
