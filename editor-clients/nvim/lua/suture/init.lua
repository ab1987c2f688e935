--- Suggestions by `suture lsp`: what other plugins and a user's settings call.

local ghost = require('suture.ghost')
local keys = require('suture.keys')
local options_of = require('suture.options')
local server = require('suture.server')
local status = require('suture.status')
local switches = require('suture.switches')

local M = {}

---@type suture.Options?
local options
local problems = {}
-- What was started, until it is stopped: two would draw over each other.
local front

--- Neovim itself where it can, else this plugin.
local function wanted_front()
  local has_own = vim.fn.has('nvim-0.11') == 1 and vim.lsp.inline_completion ~= nil
  return require(has_own and options.builtin and 'suture.builtin' or 'suture.inline')
end

--- Who asks and draws.
function M.front()
  return front or require('suture.inline')
end

--- Let the server know buffers as they are shown, and again when their language is another.
local function watch_buffers()
  local group = vim.api.nvim_create_augroup('suture.buffers', {})
  vim.api.nvim_create_autocmd({ 'BufEnter', 'BufWinEnter', 'InsertEnter' }, {
    group = group,
    callback = function(event)
      server.attach(event.buf)
    end,
  })
  -- A buffer may become one of another kind when it is open already.
  vim.api.nvim_create_autocmd('OptionSet', {
    group = group,
    pattern = { 'buftype', 'binary', 'modifiable' },
    callback = function()
      server.review(vim.api.nvim_get_current_buf())
    end,
  })
  vim.api.nvim_create_autocmd('FileType', {
    group = group,
    callback = function(event)
      server.detach(event.buf)
      server.attach(event.buf)
    end,
  })
  vim.api.nvim_create_autocmd('ColorScheme', { group = group, callback = ghost.define_colours })
end

--- Set the options, and begin. Those of `vim.g.suture` are below them.
---@param given? table
function M.setup(given)
  local merged = given or {}
  if type(vim.g.suture) == 'table' and type(merged) == 'table' then
    merged = vim.tbl_deep_extend('force', vim.g.suture, merged)
  end
  if front then
    front.stop()
  end
  options, problems = options_of.read(merged)
  if #problems > 0 then
    local told = table.concat(problems, '\nsuture: ')
    vim.notify('suture: ' .. told .. '\n(`:help suture-options`)', vim.log.levels.ERROR)
  end
  ghost.define_colours()
  keys.configure(options)
  watch_buffers()
  front = wanted_front()
  front.start(options)
  server.configure(options, {
    ready = front.attached,
    resumed = front.resumed,
    begun = switches.restore,
    grown = front.grown,
  })
end

--- Begin with what is set, unless `setup` was called.
function M.begin()
  if not options then
    M.setup()
  end
end

--- The options in force, and what was wrong with those that were given.
---@return suture.Options?, string[]
function M.options()
  return options, problems
end

local function client_id_here()
  local client = server.client(vim.api.nvim_get_current_buf())
  return client and client.id
end

--- How it does and why nothing comes: `kind`, `busy`, `message`, `reason`; nil where it is not.
---@return suture.Status?
function M.report()
  return status.of(client_id_here())
end

--- The same in a few letters, for a statusline.
---@return string
function M.status()
  return status.short(M.report())
end

--- Whether a suggestion is shown that could be accepted.
---@return boolean
function M.is_visible()
  return M.front().is_visible()
end

local function press(name)
  local is_visible = M.is_visible()
  if is_visible then
    vim.api.nvim_feedkeys(vim.keycode(('<Plug>(suture-%s)'):format(name)), 'mi', false)
  end
  return is_visible
end

--- Accept what is shown; false where nothing is. For keys that other plugins map.
---@return boolean
function M.accept()
  return press('accept')
end

---@return boolean
function M.accept_word()
  return press('accept-word')
end

---@return boolean
function M.accept_line()
  return press('accept-line')
end

---@return boolean
function M.dismiss()
  return press('dismiss')
end

--- Ask for a suggestion by hand, or show the next one.
function M.next()
  M.front().next()
end

return M
