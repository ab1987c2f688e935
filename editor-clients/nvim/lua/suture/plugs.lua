--- Keys without a name, for users to map: <Plug>(suture-accept) and so on.

local M = {}

local ACTIONS = {
  ['accept'] = "accept('all')",
  ['accept-word'] = "accept('word')",
  ['accept-line'] = "accept('line')",
  ['dismiss'] = 'dismiss()',
  ['next'] = 'next()',
}

function M.define()
  for name, call in pairs(ACTIONS) do
    local run = ("<Cmd>lua require('suture').front().%s<CR>"):format(call)
    if call:find('accept', 1, true) then
      -- An undo step of its own (K2).
      run = '<C-g>u' .. run .. '<C-g>u'
    end
    vim.keymap.set('i', ('<Plug>(suture-%s)'):format(name), run, { silent = true })
  end
end

return M
