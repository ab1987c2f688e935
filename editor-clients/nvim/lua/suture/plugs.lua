--- Keys without a name, for users to map: <Plug>(suture-accept) and so on; and those that the keys
--- of a suggestion stand for while it is shown.

local M = {}

local ACTIONS = {
  ['accept'] = "accept('all')",
  ['accept-word'] = "accept('word')",
  ['accept-line'] = "accept('line')",
  ['dismiss'] = 'dismiss()',
  ['next'] = 'next()',
}

local function define(name, call)
  local run = ('<Cmd>lua %s<CR>'):format(call)
  if name:find('accept', 1, true) then
    -- An undo step of its own (K2).
    run = '<C-g>u' .. run .. '<C-g>u'
  end
  vim.keymap.set('i', ('<Plug>(suture-%s)'):format(name), run, { silent = true })
end

function M.define()
  for name, call in pairs(ACTIONS) do
    define(name, ("require('suture').front().%s"):format(call))
    if name ~= 'next' then
      local option = name:gsub('-', '_')
      define('key-' .. name, ("require('suture.keys').run('%s')"):format(option))
    end
  end
end

return M
