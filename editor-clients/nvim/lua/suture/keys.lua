--- The keys of a suggestion, which are ours only while one is shown.
---
--- K1  A key does what it did before wherever there is nothing to accept: its mapping is kept, of
---     whatever kind, and is there again, untouched, once nothing is shown.
--- K2  What is accepted is undone in one step, and alone.

local M = {}

-- By the names of `options.keys`.
local ACTIONS = {
  accept = 'accept',
  accept_word = 'accept-word',
  accept_line = 'accept-line',
  dismiss = 'dismiss',
}

-- What each does to what is shown.
local RUN = {
  accept = function(front)
    front.accept('all')
  end,
  accept_word = function(front)
    front.accept('word')
  end,
  accept_line = function(front)
    front.accept('line')
  end,
  dismiss = function(front)
    front.dismiss()
  end,
}

---@type suture.Options
local options
-- The buffer whose keys are ours, and what they did before.
local taken_in, before = nil, {}

local function front()
  return require('suture').front()
end

local function fallback_of(name)
  return ('<Plug>(suture-before-%s)'):format(ACTIONS[name])
end

local function description(name)
  return 'Suture: ' .. ACTIONS[name]:gsub('-', ' ')
end

--- A mapping under another key. One that begins with its own key would come back to us.
local function renamed(mapping, key)
  local copy = vim.tbl_extend('force', mapping, {
    lhs = key,
    lhsraw = vim.keycode(key),
    buffer = 0,
  })
  copy.lhsrawalt = nil
  local rhs = type(copy.rhs) == 'string' and copy.rhs:lower() or ''
  if rhs:sub(1, #mapping.lhs) == mapping.lhs:lower() then
    copy.noremap = 1
  end
  return copy
end

--- Keep what a key does, so that it can be done under another name.
local function keep(name, key)
  local mapping = vim.fn.maparg(key, 'i', false, true)
  before[name] = mapping
  if vim.tbl_isempty(mapping) then
    vim.keymap.set('i', fallback_of(name), key)
  else
    vim.fn.mapset('i', false, renamed(mapping, fallback_of(name)))
  end
end

local function press(name)
  if front().is_visible() then
    return ('<Plug>(suture-key-%s)'):format(ACTIONS[name])
  end
  return fallback_of(name)
end

--- Do what a key is for, or what it did before. Neovim may have looked at the mapping before the
--- character was inserted that was typed in front of it: there may be nothing to accept now.
---@param name string
function M.run(name)
  if front().is_visible() then
    RUN[name](front())
  else
    vim.api.nvim_feedkeys(vim.keycode(fallback_of(name)), 'mi', false)
  end
end

--- From now on the keys are for what is shown in the current buffer.
---@param bufnr integer
function M.take(bufnr)
  if taken_in == bufnr then
    return
  end
  M.release()
  taken_in = bufnr
  for name in pairs(ACTIONS) do
    local key = options.keys[name]
    if key then
      keep(name, key)
      vim.keymap.set('i', key, function()
        return press(name)
      end, {
        buffer = bufnr,
        expr = true,
        remap = true,
        nowait = true,
        desc = description(name),
      })
    end
  end
end

local function give_back(name, key)
  local mapping = vim.fn.maparg(key, 'i', false, true)
  -- Somebody else may have mapped it meanwhile.
  if mapping.buffer ~= 1 or mapping.desc ~= description(name) then
    return
  end
  vim.keymap.del('i', key, { buffer = 0 })
  if before[name].buffer == 1 then
    vim.fn.mapset('i', false, before[name])
  end
end

--- From now on the keys are what they were.
function M.release()
  local bufnr = taken_in
  taken_in = nil
  if not bufnr or not vim.api.nvim_buf_is_valid(bufnr) then
    return
  end
  vim.api.nvim_buf_call(bufnr, function()
    for name in pairs(ACTIONS) do
      if options.keys[name] then
        give_back(name, options.keys[name])
      end
    end
  end)
end

--- Put keys in force. That for the next suggestion is always ours, unless it is mapped already.
---@param wanted suture.Options
function M.configure(wanted)
  M.release()
  if options and options.keys.next then
    local mapping = vim.fn.maparg(options.keys.next, 'i', false, true)
    if mapping.desc == 'Suture: next' then
      vim.keymap.del('i', options.keys.next)
    end
  end
  options = wanted
  if options.keys.next and vim.fn.maparg(options.keys.next, 'i') == '' then
    vim.keymap.set('i', options.keys.next, '<Plug>(suture-next)', { desc = 'Suture: next' })
  end
end

return M
