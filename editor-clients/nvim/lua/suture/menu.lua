--- The popup menu of completions, whoever draws it: Neovim, nvim-cmp or blink.cmp.

local M = {}

--- Whether a menu is open.
function M.is_open()
  if vim.fn.pumvisible() == 1 then
    return true
  end
  local cmp, blink = package.loaded['cmp'], package.loaded['blink.cmp']
  if type(cmp) == 'table' and cmp.visible and cmp.visible() then
    return true
  end
  return type(blink) == 'table' and blink.is_menu_visible and blink.is_menu_visible() or false
end

--- The selected row of Neovim's menu, and where in the line the word begins that it completes.
---@return { first: integer, text: string }?
function M.selected()
  if vim.fn.pumvisible() == 0 then
    return nil
  end
  local info = vim.fn.complete_info({ 'selected', 'items', 'mode' })
  local row = info.selected >= 0 and info.items[info.selected + 1] or nil
  if not row or row.word == '' then
    return nil
  end
  local col = vim.api.nvim_win_get_cursor(0)[2]
  local before = vim.api.nvim_get_current_line():sub(1, col)
  -- Where a menu begins Neovim does not tell: as much stands there as the row begins with.
  for length = math.min(#row.word, #before), 0, -1 do
    if before:sub(#before - length + 1):lower() == row.word:sub(1, length):lower() then
      return { first = col - length, text = row.word }
    end
  end
end

--- Tell when a menu opens or closes.
---@param group integer
---@param changed fun()
function M.watch(group, changed)
  vim.api.nvim_create_autocmd({ 'CompleteChanged', 'CompleteDone' }, {
    group = group,
    callback = vim.schedule_wrap(changed),
  })
  vim.api.nvim_create_autocmd('User', {
    group = group,
    pattern = { 'BlinkCmpMenuOpen', 'BlinkCmpMenuClose' },
    callback = vim.schedule_wrap(changed),
  })
  vim.api.nvim_create_autocmd('InsertEnter', {
    group = group,
    callback = function()
      M.hook_cmp(changed)
    end,
  })
end

local is_hooked = false

--- nvim-cmp has its own events, once it is loaded.
function M.hook_cmp(changed)
  local cmp = package.loaded['cmp']
  if is_hooked or type(cmp) ~= 'table' or not cmp.event then
    return
  end
  is_hooked = true
  cmp.event:on('menu_opened', vim.schedule_wrap(changed))
  cmp.event:on('menu_closed', vim.schedule_wrap(changed))
end

return M
